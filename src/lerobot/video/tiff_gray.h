// The TIFF files that depth images are stored in: what PIL writes for modes I;16 and F.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "lerobot/video/image_decoder.h"

namespace lerobot::video {

/// Reads an uncompressed TIFF (6.0, baseline) of one 16-bit unsigned or 32-bit float channel, in
/// strips, either byte order; FFmpeg's decoder knows no float ones. nullopt for every other kind of
/// TIFF. Throws Error when the file is of this kind and damaged.
std::optional<Image> read_gray_tiff(std::span<const std::uint8_t> bytes);

}  // namespace lerobot::video
