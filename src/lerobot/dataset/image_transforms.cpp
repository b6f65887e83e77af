#include "lerobot/dataset/image_transforms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include "lerobot/base/error.h"
#include "lerobot/dataset/image_operations.h"

namespace lerobot::dataset {

class ImageTransform {
 public:
  virtual ~ImageTransform() = default;
  virtual void apply(const Frames& frames, at::Generator& generator) const = 0;
};

namespace {

struct Range {
  double low;
  double high;
};

/// torch.empty(1).uniform_(low, high).item()
double draw(const Range& range, at::Generator& generator) {
  return at::empty({1}, at::kFloat).uniform_(range.low, range.high, generator).item<double>();
}

// --- Reading a transform's keywords
// -----------------------------------------------------------------

/// The kwargs of one transform; every message names the option.
class Keywords {
 public:
  Keywords(std::string option, const config::ImageTransformConfig& config)
      : option_(std::move(option)), type_(config.type), kwargs_(config.kwargs) {
    if (!kwargs_.is_object() && !kwargs_.is_null())
      fail_usage("{}.kwargs must be an object, found {}", option_, kwargs_.dump());
  }

  /// Throws for keywords that are not among `known`.
  void allow(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : kwargs_.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      if (known.size() == 0) fail_usage("{}.kwargs.{}: {} takes no keywords", option_, key, type_);
      fail_usage("{}.kwargs.{}: {} has no such keyword; expected {}", option_, key, type_,
                 fmt::join(known, ", "));
    }
  }

  /// The value, or null when it is absent or null.
  const Json* find(const char* key) const {
    const auto value = kwargs_.find(key);
    return value == kwargs_.end() || value->is_null() ? nullptr : &*value;
  }

  [[noreturn]] void refuse(const char* key, const std::string& expected, const Json& found) const {
    fail_usage("{}.kwargs.{} must be {}, found {}", option_, key, expected, found.dump());
  }

  /// A list of `count` finite numbers.
  std::optional<std::vector<double>> numbers(const char* key, std::size_t count,
                                             const std::string& expected) const {
    const Json* value = find(key);
    if (!value) return {};
    if (!value->is_array() || value->size() != count) refuse(key, expected, *value);
    std::vector<double> list;
    for (const Json& number : *value) {
      if (!number.is_number() || !std::isfinite(number.get<double>()))
        refuse(key, expected, *value);
      list.push_back(number.get<double>());
    }
    return list;
  }

  /// torchvision's jitter range: [low, high] within the bounds, or a number x for
  /// [center - x, center + x], cut off at the lower bound when `cut`.
  std::optional<Range> jitter(const char* key, double center, Range bounds, bool cut) const {
    const Json* value = find(key);
    if (!value) return {};
    const std::string expected =
        std::isinf(bounds.high)
            ? std::string("a number of at least 0 or [low, high] with 0 <= low <= high")
            : fmt::format("a number from 0 to {1} or [low, high] with {0} <= low <= high <= {1}",
                          bounds.low, bounds.high);
    Range range{};
    if (value->is_number()) {
      const double reach = value->get<double>();
      if (!(reach >= 0) || std::isinf(reach)) refuse(key, expected, *value);
      range = {center - reach, center + reach};
      if (cut) range.low = std::max(range.low, 0.0);
    } else {
      const auto pair = numbers(key, 2, expected);
      range = {(*pair)[0], (*pair)[1]};
    }
    if (!(bounds.low <= range.low && range.low <= range.high && range.high <= bounds.high))
      refuse(key, expected, *value);
    return range;
  }

  /// torchvision's angles in degrees: [low, high] (or more numbers), or a number x for [-x, x].
  std::optional<std::vector<double>> angles(const char* key,
                                            std::initializer_list<std::size_t> counts) const {
    const Json* value = find(key);
    if (!value) return {};
    const std::string expected =
        fmt::format("a number of at least 0 or a list of {} numbers", fmt::join(counts, " or "));
    if (value->is_number()) {
      const double reach = value->get<double>();
      if (!(reach >= 0) || std::isinf(reach)) refuse(key, expected, *value);
      return std::vector<double>{-reach, reach};
    }
    if (!value->is_array() ||
        std::find(counts.begin(), counts.end(), value->size()) == counts.end())
      refuse(key, expected, *value);
    auto list = numbers(key, value->size(), expected);
    for (std::size_t i = 0; i + 1 < list->size(); i += 2)
      if ((*list)[i] > (*list)[i + 1]) refuse(key, expected + ", low before high", *value);
    return list;
  }

  const std::string& option() const { return option_; }

 private:
  std::string option_;
  std::string type_;
  const Json& kwargs_;
};

// --- The transforms
// ---------------------------------------------------------------------------------

class Identity final : public ImageTransform {
 public:
  explicit Identity(const Keywords& keywords) { keywords.allow({}); }
  void apply(const Frames&, at::Generator&) const override {}
};

class ColorJitter final : public ImageTransform {
 public:
  explicit ColorJitter(const Keywords& keywords) {
    keywords.allow({"brightness", "contrast", "saturation", "hue"});
    constexpr Range kFactor{0.0, std::numeric_limits<double>::infinity()};
    ranges_ = {keywords.jitter("brightness", 1.0, kFactor, true),
               keywords.jitter("contrast", 1.0, kFactor, true),
               keywords.jitter("saturation", 1.0, kFactor, true),
               keywords.jitter("hue", 0.0, {-0.5, 0.5}, false)};
    // A range of nothing but the neutral value counts as absent, and draws nothing.
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const double neutral = i == kHue ? 0.0 : 1.0;
      if (ranges_[i] && ranges_[i]->low == neutral && ranges_[i]->high == neutral)
        ranges_[i].reset();
    }
  }

  void apply(const Frames& frames, at::Generator& generator) const override {
    const at::Tensor order = at::randperm(4, generator, at::kLong);
    std::array<double, 4> factors{};
    for (std::size_t i = 0; i < ranges_.size(); ++i)
      if (ranges_[i]) factors[i] = draw(*ranges_[i], generator);
    constexpr std::array kAdjust = {&adjust_brightness, &adjust_contrast, &adjust_saturation,
                                    &adjust_hue};
    for (int k = 0; k < 4; ++k) {
      const auto i = static_cast<std::size_t>(order.const_data_ptr<std::int64_t>()[k]);
      if (ranges_[i]) kAdjust[i](frames, factors[i]);
    }
  }

 private:
  static constexpr std::size_t kHue = 3;
  std::array<std::optional<Range>, 4> ranges_;
};

class SharpnessJitter final : public ImageTransform {
 public:
  explicit SharpnessJitter(const Keywords& keywords) {
    keywords.allow({"sharpness"});
    const auto range =
        keywords.jitter("sharpness", 1.0, {0.0, std::numeric_limits<double>::infinity()}, true);
    if (!range) fail_usage("{}.kwargs.sharpness is required", keywords.option());
    range_ = *range;
  }

  void apply(const Frames& frames, at::Generator& generator) const override {
    adjust_sharpness(frames, draw(range_, generator));
  }

 private:
  Range range_{};
};

class RandomAffine final : public ImageTransform {
 public:
  explicit RandomAffine(const Keywords& keywords) {
    keywords.allow({"degrees", "translate", "scale", "shear", "interpolation", "fill", "center"});
    const auto degrees = keywords.angles("degrees", {2});
    if (!degrees) fail_usage("{}.kwargs.degrees is required", keywords.option());
    degrees_ = {(*degrees)[0], (*degrees)[1]};
    if (const auto pair = keywords.numbers("translate", 2, "two fractions from 0 to 1")) {
      for (double fraction : *pair)
        if (fraction < 0 || fraction > 1)
          keywords.refuse("translate", "two fractions from 0 to 1", *keywords.find("translate"));
      translate_ = Range{(*pair)[0], (*pair)[1]};
    }
    if (const auto pair = keywords.numbers("scale", 2, "[low, high] above 0")) {
      if (!((*pair)[0] > 0 && (*pair)[0] <= (*pair)[1]))
        keywords.refuse("scale", "[low, high] above 0", *keywords.find("scale"));
      scale_ = Range{(*pair)[0], (*pair)[1]};
    }
    if (const auto list = keywords.angles("shear", {2, 4})) shear_ = *list;
    if (const Json* mode = keywords.find("interpolation"); mode && *mode != 0 && *mode != "nearest")
      keywords.refuse("interpolation", "\"nearest\" (or 0, Pillow's number for it)", *mode);
    read_fill(keywords);
    if (const auto pair = keywords.numbers("center", 2, "two numbers, x and y in pixels"))
      base_.center = {(*pair)[0], (*pair)[1]};
  }

  void apply(const Frames& frames, at::Generator& generator) const override {
    Affine parameters = base_;
    parameters.angle = draw(degrees_, generator);
    if (translate_) {
      const double dx = translate_->low * static_cast<double>(frames.width);
      const double dy = translate_->high * static_cast<double>(frames.height);
      // Python's round(): half to even.
      parameters.translate[0] = std::nearbyint(draw({-dx, dx}, generator));
      parameters.translate[1] = std::nearbyint(draw({-dy, dy}, generator));
    }
    if (scale_) parameters.scale = draw(*scale_, generator);
    if (!shear_.empty()) parameters.shear[0] = draw({shear_[0], shear_[1]}, generator);
    if (shear_.size() == 4) parameters.shear[1] = draw({shear_[2], shear_[3]}, generator);
    affine(frames, parameters);
  }

 private:
  void read_fill(const Keywords& keywords) {
    const Json* fill = keywords.find("fill");
    if (!fill) return;
    constexpr const char* kExpected = "a level from 0 to 255, or a list of one a channel";
    const Json list = fill->is_array() ? *fill : Json::array({*fill});
    if (list.size() != 1 && list.size() != 3) keywords.refuse("fill", kExpected, *fill);
    base_.fill.clear();
    for (const Json& level : list) {
      if (!level.is_number() || !(level.get<double>() >= 0 && level.get<double>() <= 255))
        keywords.refuse("fill", kExpected, *fill);
      base_.fill.push_back(level.get<double>());
    }
  }

  Range degrees_{};
  std::optional<Range> translate_;  // fractions of the width and of the height
  std::optional<Range> scale_;
  std::vector<double> shear_;
  Affine base_;
};

/// LeRobot's own transforms that leave uint8 frames, which its training uses, as they are.
bool leaves_levels_alone(std::string_view type) {
  constexpr std::string_view kTypes[] = {
      "GaussianNoise", "MotionBlur",    "JPEGCompression", "GaussianPatchBrightness",
      "RandomShadow",  "CoarseDropout", "GammaCorrection", "PlanckianJitter"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

std::shared_ptr<const ImageTransform> make_transform(const std::string& name,
                                                     const config::ImageTransformConfig& config) {
  const Keywords keywords("dataset.image_transforms.tfs." + name, config);
  if (config.type == "Identity") return std::make_shared<Identity>(keywords);
  if (config.type == "ColorJitter") return std::make_shared<ColorJitter>(keywords);
  if (config.type == "SharpnessJitter") return std::make_shared<SharpnessJitter>(keywords);
  if (config.type == "RandomAffine") return std::make_shared<RandomAffine>(keywords);
  if (leaves_levels_alone(config.type))
    fail_usage(
        "{}.type={} is not supported: LeRobot's own changes nothing in training, where frames are "
        "uint8; remove it or set its weight to 0",
        keywords.option(), config.type);
  fail_usage("{}.type must be ColorJitter, SharpnessJitter, RandomAffine or Identity, found \"{}\"",
             keywords.option(), config.type);
}

}  // namespace

ImageTransforms::ImageTransforms(const config::ImageTransformsConfig& config)
    : random_order_(config.random_order) {
  if (!config.enable) return;
  if (config.max_num_transforms < 0)
    fail_usage("dataset.image_transforms.max_num_transforms must be at least 0, found {}",
               config.max_num_transforms);
  std::vector<double> weights;
  for (const auto& [name, transform] : config.tfs) {
    if (transform.weight <= 0) continue;
    if (!std::isfinite(transform.weight))
      fail_usage("dataset.image_transforms.tfs.{}.weight must be finite, found {}", name,
                 transform.weight);
    transforms_.push_back(make_transform(name, transform));
    weights.push_back(transform.weight);
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double weight : weights) probabilities_.push_back(static_cast<float>(weight / total));
  draws_ = std::min(config.max_num_transforms, static_cast<std::int64_t>(transforms_.size()));
}

void ImageTransforms::operator()(at::Tensor& pixels, at::Generator& generator) const {
  if (draws_ == 0) return;
  check_internal(pixels.scalar_type() == at::kByte && pixels.is_contiguous() &&
                     (pixels.dim() == 3 || pixels.dim() == 4),
                 "image transforms need contiguous uint8 frames");
  const std::int64_t first = pixels.dim() - 3;
  const Frames frames{pixels.mutable_data_ptr<std::uint8_t>(), first == 0 ? 1 : pixels.size(0),
                      pixels.size(first), pixels.size(first + 1), pixels.size(first + 2)};
  const at::Tensor drawn = at::multinomial(at::tensor(probabilities_), draws_,
                                           /*replacement=*/false, generator);
  const std::int64_t* const data = drawn.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> chosen(data, data + draws_);
  if (!random_order_) std::sort(chosen.begin(), chosen.end());
  for (std::int64_t i : chosen) transforms_[static_cast<std::size_t>(i)]->apply(frames, generator);
}

}  // namespace lerobot::dataset
