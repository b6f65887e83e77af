// torchvision's image adjustments (transforms.v2.functional, 0.26) on uint8 frames, in place.
//
// Given the same numbers the pixels are torchvision's, bit for bit, with one exception:
// adjust_contrast averages exactly where torch adds up in float32, so that on images of more than
// 65,000 pixels a value on the edge between two levels may fall to the other one.
//
// Thread-safe: nothing is shared between calls. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace lerobot::dataset {

/// `count` frames of channels x height x width values each, one after another without gaps. One or
/// three channels, but for affine().
struct Frames {
  std::uint8_t* pixels;
  std::int64_t count;
  std::int64_t channels;
  std::int64_t height;
  std::int64_t width;

  std::int64_t plane() const { return height * width; }
};

/// value * factor. Factor 0 gives black, 1 the image.
void adjust_brightness(const Frames& frames, double factor);
/// Blends with the mean of each frame's own gray image. Factor 0 gives gray, 1 the image.
void adjust_contrast(const Frames& frames, double factor);
/// Blends with the gray image. Factor 0 gives gray levels, 1 the image. One channel: nothing.
void adjust_saturation(const Frames& frames, double factor);
/// Turns the hue by `factor` of a full circle (-0.5 to 0.5). One channel: nothing.
void adjust_hue(const Frames& frames, double factor);
/// Blends with a 3x3 blur (the border stays). Factor 0 gives the blur, 1 the image.
void adjust_sharpness(const Frames& frames, double factor);

/// An affine map of the image plane around its center, with nearest-neighbour sampling.
struct Affine {
  double angle = 0.0;                           // degrees, clockwise
  std::array<double, 2> translate{0.0, 0.0};    // pixels: right, down
  double scale = 1.0;                           // above 0
  std::array<double, 2> shear{0.0, 0.0};        // degrees along x and y
  std::optional<std::array<double, 2>> center;  // x, y in pixels; the image's center without it
  std::vector<double> fill{0.0};  // for what comes from outside: one value, or one a channel
};
void affine(const Frames& frames, const Affine& parameters);

}  // namespace lerobot::dataset
