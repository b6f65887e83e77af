// Where decoding may begin, and what it may leave out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lerobot/video/mp4_index.h"

namespace lerobot::video {

/// The sync sample from which decoding gives `sample` the pixels of a decode from the file's start.
/// That is the last sync sample at or before it, unless `sample` is shown before that one: with
/// open GOPs such leading pictures also refer to the GOP before.
inline std::size_t random_access_point(const Mp4Index& index, std::size_t sample) {
  const SampleTable& samples = index.samples;
  std::size_t sync = samples.sync_at_or_before(sample);
  while (sync > 0 && samples.composition_time(sample) < samples.composition_time(sync))
    sync = samples.sync_at_or_before(sync - 1);
  return sync;
}

/// Whether no other picture refers to this coded frame, so that who does not want it itself need
/// not decode it. Looks at the first picture data in `packet`; false when in doubt.
bool is_disposable(const Mp4Index& index, std::span<const std::uint8_t> packet);

}  // namespace lerobot::video
