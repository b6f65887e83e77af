// What a reader of frames asks for.
#pragma once

#include <cstdint>

namespace lerobot::video {

enum class PixelLayout {
  kRgbPlanes,  ///< uint8 [3, height, width], the values of swscale's yuv -> rgb24
  kGray16,     ///< uint16 [height, width], the luma plane as it is (depth codes; 8 bit is widened)
};

/// The frame whose presentation time is nearest to `time_s` goes to `out`, which has room for one
/// frame of the requested layout. Times are seconds on the file's own (edited) time line.
struct FrameRequest {
  double time_s = 0.0;
  void* out = nullptr;
};

}  // namespace lerobot::video
