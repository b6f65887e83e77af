// From decoded frames to the caller's rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lerobot/video/ffmpeg.h"
#include "lerobot/video/frame_request.h"

namespace lerobot::video {

/// Writes decoded frames in one layout. RGB values are those of torchcodec 0.11 on the same FFmpeg:
/// swscale's bicubic conversion with the frame's own colour space. Single-threaded; keeps its
/// swscale context and scratch.
class FrameConverter {
 public:
  explicit FrameConverter(PixelLayout layout) : layout_(layout) {}

  PixelLayout layout() const { return layout_; }
  /// Bytes that convert() writes for a frame of that size.
  static std::size_t output_bytes(PixelLayout layout, int width, int height);

  /// Writes `frame` to `out`. Throws Error naming the pixel format when it can't be converted.
  void convert(const AVFrame& frame, void* out);

 private:
  void convert_rgb(const AVFrame& frame, std::uint8_t* planes);
  void convert_gray(const AVFrame& frame, std::uint16_t* out) const;
  void prepare_scaler(const AVFrame& frame);

  PixelLayout layout_;
  UniqueScaler scaler_;
  int width_ = 0;
  int height_ = 0;
  int format_ = -1;
  int color_space_ = -1;
  int color_range_ = -1;
  std::vector<std::uint8_t> packed_;  // rows of packed RGB on their way to the planes
};

/// Splits `pixels` packed RGB pixels into three planes. Not aligned, not padded: writes and reads
/// exactly what is said.
void split_rgb(const std::uint8_t* packed, std::size_t pixels, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue);

}  // namespace lerobot::video
