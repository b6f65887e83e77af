// Whole still images as Parquet columns hold them: PNG and TIFF.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lerobot::video {

/// A decoded image. Exactly one of the three vectors is filled, according to `format`.
struct Image {
  enum class Format {
    kRgbPlanes,  ///< `planes`: uint8 [3, height, width]
    kGray16,     ///< `gray16`: uint16 [height, width]
    kGrayFloat,  ///< `gray_float`: float32 [height, width]
  };
  Format format = Format::kRgbPlanes;
  int width = 0;
  int height = 0;
  int channels = 0;  // 3 or 1
  int bits = 0;      // a channel: 8, 16 or 32
  std::vector<std::uint8_t> planes;
  std::vector<std::uint16_t> gray16;
  std::vector<float> gray_float;
};

/// Decodes a PNG (any 8-bit kind becomes RGB: gray is repeated, alpha dropped, a palette looked up;
/// 16-bit gray stays gray) or a TIFF (8-bit as above, 16-bit and float32 gray). Values are PIL's.
/// Throws Error saying what the bytes are when they are something else or broken. Thread-safe.
Image decode_image(std::span<const std::uint8_t> bytes);

}  // namespace lerobot::video
