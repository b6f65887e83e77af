#include "lerobot/dataset/image_operations.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "lerobot/base/error.h"
#include "lerobot/base/wide_loops.h"

LEROBOT_EXACT_LOOPS

namespace lerobot::dataset {
namespace {

// Where torchvision computes in float32 by several operations, each of them rounds; only
// a.add(b, alpha) is a fused multiply-add.

// Not std::min and std::max: their references keep loops from being vectorised.
LEROBOT_ALWAYS_INLINE float smaller(float a, float b) { return b < a ? b : a; }
LEROBOT_ALWAYS_INLINE float larger(float a, float b) { return a < b ? b : a; }

/// clamp(0, 255) and the conversion to uint8, which drops the fraction.
LEROBOT_ALWAYS_INLINE std::uint8_t to_level(float value) {
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(smaller(larger(value, 0.0f), 255.0f)));
}

/// The gray level: 0.2989 r + 0.587 g + 0.114 b, without its fraction.
template <bool kFused>
LEROBOT_ALWAYS_INLINE std::int32_t gray_of(std::uint8_t r, std::uint8_t g, std::uint8_t b) {
  const float red = static_cast<float>(r) * 0.2989f;
  const float red_green = multiply_add<kFused>(static_cast<float>(g), 0.587f, red);
  return static_cast<std::int32_t>(multiply_add<kFused>(static_cast<float>(b), 0.114f, red_green));
}

using LevelTable = std::array<std::uint8_t, 256>;

void apply_table(const LevelTable& table, std::uint8_t* pixels, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) pixels[i] = table[pixels[i]];
}

template <bool kFused>
LEROBOT_ALWAYS_INLINE std::int64_t gray_sum(const std::uint8_t* __restrict rgb,
                                            std::int64_t plane) {
  const std::uint8_t *r = rgb, *g = rgb + plane, *b = rgb + 2 * plane;
  constexpr std::int64_t kBlock = 1 << 20;  // 2^20 levels fit in an int32
  std::int64_t sum = 0;
  for (std::int64_t begin = 0; begin < plane; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, plane);
    std::int32_t part = 0;
    for (std::int64_t i = begin; i < end; ++i) part += gray_of<kFused>(r[i], g[i], b[i]);
    sum += part;
  }
  return sum;
}

template <bool kFused>
LEROBOT_ALWAYS_INLINE void saturate(std::uint8_t* __restrict rgb, std::int64_t plane, float ratio,
                                    float gray_ratio) {
  std::uint8_t *r = rgb, *g = rgb + plane, *b = rgb + 2 * plane;
  for (std::int64_t i = 0; i < plane; ++i) {
    const auto gray = static_cast<float>(gray_of<kFused>(r[i], g[i], b[i]));
    r[i] = to_level(multiply_add<kFused>(gray, gray_ratio, static_cast<float>(r[i]) * ratio));
    g[i] = to_level(multiply_add<kFused>(gray, gray_ratio, static_cast<float>(g[i]) * ratio));
    b[i] = to_level(multiply_add<kFused>(gray, gray_ratio, static_cast<float>(b[i]) * ratio));
  }
}

/// Of a value that is not negative.
LEROBOT_ALWAYS_INLINE float whole_part(float value) {
  return static_cast<float>(static_cast<std::int32_t>(value));
}

LEROBOT_ALWAYS_INLINE float to_unit(float value) { return smaller(larger(value, 0.0f), 1.0f); }

/// torchvision's float to uint8: 255.999 instead of rounding.
LEROBOT_ALWAYS_INLINE std::uint8_t from_unit(float value) {
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(value * 255.999f));
}

LEROBOT_ALWAYS_INLINE void turn_hue(std::uint8_t* __restrict rgb, std::int64_t plane,
                                    float factor) {
  constexpr float kUnit = static_cast<float>(1.0 / 255.0), kSixth = static_cast<float>(1.0 / 6.0);
  std::uint8_t *reds = rgb, *greens = rgb + plane, *blues = rgb + 2 * plane;
  for (std::int64_t i = 0; i < plane; ++i) {
    const float r = static_cast<float>(reds[i]) * kUnit;
    const float g = static_cast<float>(greens[i]) * kUnit;
    const float b = static_cast<float>(blues[i]) * kUnit;
    // To hue (0 to 1), saturation and value.
    const float v = larger(larger(r, g), b);
    const float low = smaller(smaller(r, g), b);
    const float range = v - low;
    const bool gray = v == low;
    const float s = range / (gray ? 1.0f : v);
    const float divisor = gray ? 1.0f : range;
    const float rc = (v - r) / divisor, gc = (v - g) / divisor, bc = (v - b) / divisor;
    const bool is_red = v == r, is_green = v == g;
    const float green_or_blue = is_green ? (rc + 2.0f) - bc : (gc + 4.0f) - rc;
    float h = (is_red ? bc - gc : green_or_blue) * kSixth + 1.0f;
    h -= whole_part(h);
    h += factor;
    // Python's modulo 1 of a number between -1 and 2.
    h -= static_cast<float>(static_cast<std::int32_t>(h));
    h = h < 0.0f ? h + 1.0f : h;
    // And back.
    const float h6 = h * 6.0f;
    const float sector = whole_part(h6);
    const float f = h6 - sector;
    const float sf = s * f, rest = 1.0f - s;
    const float p = to_unit(rest * v), q = to_unit((1.0f - sf) * v), t = to_unit((sf + rest) * v);
    const bool s1 = sector == 1.0f, s2 = sector == 2.0f, s3 = sector == 3.0f, s4 = sector == 4.0f;
    const bool s5 = sector == 5.0f;
    // Sector 6 is sector 0 again.
    const float red = s1 ? q : s2 ? p : s3 ? p : s4 ? t : v;
    const float green = s1 ? v : s2 ? v : s3 ? q : s4 ? p : s5 ? p : t;
    const float blue = s1 ? p : s2 ? t : s3 ? v : s4 ? v : s5 ? q : p;
    reds[i] = from_unit(red);
    greens[i] = from_unit(green);
    blues[i] = from_unit(blue);
  }
}

/// One inner row: `above`, `here` and `below` are copies of the unchanged rows.
template <bool kFused>
LEROBOT_ALWAYS_INLINE void sharpen_row(const std::uint8_t* __restrict above,
                                       const std::uint8_t* __restrict here,
                                       const std::uint8_t* __restrict below,
                                       std::uint8_t* __restrict out, std::int64_t width,
                                       float blur_ratio) {
  for (std::int64_t x = 1; x + 1 < width; ++x) {
    // The kernel is 1 around a 5, divided by 13: an odd number, so that rounding has no ties.
    const std::int32_t sum = above[x - 1] + above[x] + above[x + 1] + here[x - 1] + 5 * here[x] +
                             here[x + 1] + below[x - 1] + below[x] + below[x + 1];
    const std::int32_t blur = (2 * sum + 13) / 26;
    out[x] = to_level(multiply_add<kFused>(static_cast<float>(blur - here[x]), blur_ratio,
                                           static_cast<float>(here[x])));
  }
}

template <bool kFused>
LEROBOT_ALWAYS_INLINE void sharpen(std::uint8_t* pixels, std::int64_t planes, std::int64_t height,
                                   std::int64_t width, float blur_ratio) {
  const auto row_bytes = static_cast<std::size_t>(width);
  std::vector<std::uint8_t> rows(3 * row_bytes);
  for (std::int64_t plane = 0; plane < planes; ++plane, pixels += height * width) {
    std::uint8_t *above = rows.data(), *here = above + width, *below = here + width;
    std::memcpy(above, pixels, row_bytes);
    std::memcpy(here, pixels + width, row_bytes);
    for (std::int64_t y = 1; y + 1 < height; ++y) {
      std::memcpy(below, pixels + (y + 1) * width, row_bytes);
      sharpen_row<kFused>(above, here, below, pixels + y * width, width, blur_ratio);
      std::uint8_t* const oldest = above;
      above = here;
      here = below;
      below = oldest;
    }
  }
}

/// A row of the inverse map: where the pixels of output row y come from, as an offset into the
/// plane, or -1 from outside.
struct InverseMap {
  // Normalised source x = (column * xx + row * xy) + x0, y likewise; columns and rows counted from
  // the center; -1 to 1 across the image.
  float xx, xy, x0, yx, yy, y0;
};

LEROBOT_ALWAYS_INLINE void source_offsets(const InverseMap& map, std::int64_t height,
                                          std::int64_t width, std::int64_t y,
                                          std::int32_t* __restrict offsets) {
  // Adding and taking away 1.5 * 2^23 rounds half to even.
  constexpr float kRound = 12582912.0f;
  const auto w = static_cast<float>(width), h = static_cast<float>(height);
  const float half_w = w / 2.0f, half_h = h / 2.0f;
  const float row = static_cast<float>(y) - (h - 1.0f) * 0.5f;
  const float x_of_row = row * map.xy, y_of_row = row * map.yy;
  const auto stride = static_cast<std::int32_t>(width);
  for (std::int32_t x = 0; x < stride; ++x) {
    const float column = static_cast<float>(x) - (w - 1.0f) * 0.5f;
    const float source_x = ((column * map.xx + x_of_row) + map.x0 + 1.0f) * half_w - 0.5f;
    const float source_y = ((column * map.yx + y_of_row) + map.y0 + 1.0f) * half_h - 0.5f;
    // Far outside, and what is no number, is outside: the rounding and the conversion stay in
    // range.
    const float near_x = smaller(source_x > -2.0f ? source_x : -2.0f, w + 1.0f);
    const float near_y = smaller(source_y > -2.0f ? source_y : -2.0f, h + 1.0f);
    const float rounded_x = (near_x + kRound) - kRound, rounded_y = (near_y + kRound) - kRound;
    const bool inside = rounded_x >= 0.0f && rounded_x < w && rounded_y >= 0.0f && rounded_y < h;
    const std::int32_t offset =
        static_cast<std::int32_t>(rounded_y) * stride + static_cast<std::int32_t>(rounded_x);
    offsets[x] = inside ? offset : -1;
  }
}

InverseMap inverse_map(const Affine& a, double width, double height) {
  constexpr double kRadians = std::numbers::pi / 180.0;
  const double rotation = a.angle * kRadians;
  const double sx = a.shear[0] * kRadians, sy = a.shear[1] * kRadians;
  // Rotation, shear along y, shear along x; its determinant is 1.
  const double m00 = std::cos(rotation - sy) / std::cos(sy);
  const double m01 = -(m00 * std::tan(sx) + std::sin(rotation));
  const double m10 = std::sin(rotation - sy) / std::cos(sy);
  const double m11 = std::cos(rotation) - m10 * std::tan(sx);
  const double xx = m11 / a.scale, xy = -m01 / a.scale, yx = -m10 / a.scale, yy = m00 / a.scale;
  // The center, counted from the image's.
  const double cx = a.center ? (*a.center)[0] - width * 0.5 : 0.0;
  const double cy = a.center ? (*a.center)[1] - height * 0.5 : 0.0;
  const double to_x = cx + a.translate[0], to_y = cy + a.translate[1];
  const double x0 = 0.0 + (cx - xx * to_x - xy * to_y);
  const double y0 = 0.0 + (cy - yx * to_x - yy * to_y);
  const auto normalised = [](double value, double size) {
    return static_cast<float>(value) / static_cast<float>(0.5 * size);
  };
  return {normalised(xx, width),  normalised(xy, width),  normalised(x0, width),
          normalised(yx, height), normalised(yy, height), normalised(y0, height)};
}

// --- The two compilations of each loop
// --------------------------------------------------------------

LEROBOT_WIDE std::int64_t wide_gray_sum(const std::uint8_t* rgb, std::int64_t plane) {
  return gray_sum<true>(rgb, plane);
}
LEROBOT_WIDE void wide_saturate(std::uint8_t* rgb, std::int64_t plane, float ratio,
                                float gray_ratio) {
  saturate<true>(rgb, plane, ratio, gray_ratio);
}
LEROBOT_WIDE void wide_turn_hue(std::uint8_t* rgb, std::int64_t plane, float factor) {
  turn_hue(rgb, plane, factor);
}
LEROBOT_WIDE void wide_sharpen(std::uint8_t* pixels, std::int64_t planes, std::int64_t height,
                               std::int64_t width, float blur_ratio) {
  sharpen<true>(pixels, planes, height, width, blur_ratio);
}
LEROBOT_WIDE void wide_source_offsets(const InverseMap& map, std::int64_t height,
                                      std::int64_t width, std::int64_t y, std::int32_t* offsets) {
  source_offsets(map, height, width, y, offsets);
}

void check_channels(const Frames& frames) {
  if (frames.channels != 1 && frames.channels != 3)
    fail("image transforms need cameras with 1 or 3 channels, found {}", frames.channels);
}

}  // namespace

void adjust_brightness(const Frames& frames, double factor) {
  check_channels(frames);
  LevelTable table;
  for (std::size_t level = 0; level < table.size(); ++level)
    table[level] = to_level(static_cast<float>(level) * static_cast<float>(factor));
  apply_table(table, frames.pixels, frames.count * frames.channels * frames.plane());
}

void adjust_contrast(const Frames& frames, double factor) {
  check_channels(frames);
  const std::int64_t plane = frames.plane(), frame = frames.channels * plane;
  if (plane == 0) return;
  const bool wide = use_wide_loops();
  const auto ratio = static_cast<float>(factor), mean_ratio = static_cast<float>(1.0 - factor);
  for (std::int64_t n = 0; n < frames.count; ++n) {
    std::uint8_t* const pixels = frames.pixels + n * frame;
    std::int64_t sum = 0;
    if (frames.channels == 1)
      for (std::int64_t i = 0; i < plane; ++i) sum += pixels[i];
    else
      sum = wide ? wide_gray_sum(pixels, plane) : gray_sum<kBaselineFuses>(pixels, plane);
    const float mean = static_cast<float>(sum) / static_cast<float>(plane);
    LevelTable table;
    for (std::size_t level = 0; level < table.size(); ++level) {
      const float part = static_cast<float>(level) * ratio;
      table[level] = to_level(wide ? multiply_add<true>(mean, mean_ratio, part)
                                   : multiply_add<kBaselineFuses>(mean, mean_ratio, part));
    }
    apply_table(table, pixels, frame);
  }
}

void adjust_saturation(const Frames& frames, double factor) {
  check_channels(frames);
  if (frames.channels == 1) return;
  const auto ratio = static_cast<float>(factor), gray_ratio = static_cast<float>(1.0 - factor);
  for (std::int64_t n = 0; n < frames.count; ++n) {
    std::uint8_t* const rgb = frames.pixels + n * 3 * frames.plane();
    if (use_wide_loops())
      wide_saturate(rgb, frames.plane(), ratio, gray_ratio);
    else
      saturate<kBaselineFuses>(rgb, frames.plane(), ratio, gray_ratio);
  }
}

void adjust_hue(const Frames& frames, double factor) {
  check_channels(frames);
  if (frames.channels == 1) return;
  for (std::int64_t n = 0; n < frames.count; ++n) {
    std::uint8_t* const rgb = frames.pixels + n * 3 * frames.plane();
    if (use_wide_loops())
      wide_turn_hue(rgb, frames.plane(), static_cast<float>(factor));
    else
      turn_hue(rgb, frames.plane(), static_cast<float>(factor));
  }
}

void adjust_sharpness(const Frames& frames, double factor) {
  check_channels(frames);
  if (frames.height <= 2 || frames.width <= 2) return;
  const auto blur_ratio = static_cast<float>(1.0 - factor);
  const std::int64_t planes = frames.count * frames.channels;
  if (use_wide_loops())
    wide_sharpen(frames.pixels, planes, frames.height, frames.width, blur_ratio);
  else
    sharpen<kBaselineFuses>(frames.pixels, planes, frames.height, frames.width, blur_ratio);
}

void affine(const Frames& frames, const Affine& parameters) {
  const std::int64_t plane = frames.plane();
  const auto size = static_cast<std::size_t>(plane);
  // A float32 counts pixels exactly only below 2^23.
  if (frames.width >= 1 << 22 || frames.height >= 1 << 22 || plane > INT32_MAX)
    fail("an affine transform of images of {}x{} pixels is not supported", frames.width,
         frames.height);
  if (parameters.fill.size() != 1 &&
      parameters.fill.size() != static_cast<std::size_t>(frames.channels))
    fail("an affine transform's fill must be one number or one a channel ({}), found {}",
         frames.channels, parameters.fill.size());
  const InverseMap map = inverse_map(parameters, static_cast<double>(frames.width),
                                     static_cast<double>(frames.height));
  std::vector<std::int32_t> offsets(size);
  for (std::int64_t y = 0; y < frames.height; ++y) {
    std::int32_t* const row = offsets.data() + y * frames.width;
    if (use_wide_loops())
      wide_source_offsets(map, frames.height, frames.width, y, row);
    else
      source_offsets(map, frames.height, frames.width, y, row);
  }
  std::vector<std::uint8_t> source(size);
  for (std::int64_t n = 0; n < frames.count; ++n) {
    for (std::int64_t c = 0; c < frames.channels; ++c) {
      std::uint8_t* const out = frames.pixels + (n * frames.channels + c) * plane;
      std::memcpy(source.data(), out, size);
      const double fill =
          parameters.fill[parameters.fill.size() == 1 ? 0 : static_cast<std::size_t>(c)];
      const auto outside = static_cast<std::uint8_t>(std::nearbyint(static_cast<float>(fill)));
      for (std::size_t i = 0; i < size; ++i)
        out[i] = offsets[i] < 0 ? outside : source[static_cast<std::size_t>(offsets[i])];
    }
  }
}

}  // namespace lerobot::dataset
