// Where a decoder gets a video's coded frames from: a mapped file, or fetched ranges of a remote
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lerobot/video/mp4_index.h"

namespace lerobot::video {

/// The samples of one video track and their bytes. Thread-safe: several decoders read one source.
class PacketSource {
 public:
  virtual ~PacketSource() = default;

  /// What messages call the video.
  virtual std::string_view name() const = 0;
  virtual const Mp4Index& index() const = 0;
  /// The bytes of sample `sample`, valid while the source lives. Throws Error when they can't be
  /// had.
  virtual std::span<const std::uint8_t> packet(std::size_t sample) const = 0;
};

}  // namespace lerobot::video
