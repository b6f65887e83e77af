// The 'stbl' box of a track: from its run-length tables to one entry a sample.
#pragma once

#include <cstdint>

#include "lerobot/video/mp4_box.h"
#include "lerobot/video/mp4_index.h"

namespace lerobot::video {

/// Expands stsz or stz2, stsc, stco or co64, stts, ctts and stss of the box `tables`. Every sample
/// lies inside the first `file_bytes` bytes. `description` becomes the (one) sample description
/// that the samples use, counted from 1. Throws Error when a table disagrees with another or the
/// file.
SampleTable read_sample_table(const Box& tables, std::uint64_t file_bytes,
                              std::uint32_t& description);

}  // namespace lerobot::video
