#include "lerobot/processor/normalizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/config/reflection.h"

namespace lerobot::processor {
namespace {

using config::FeatureType;
using config::NormalizationMode;

constexpr int kPixelValues = 256;

struct StatisticNames {
  const char* low;
  const char* high;
};

StatisticNames statistic_names(NormalizationMode mode) {
  switch (mode) {
    case NormalizationMode::kMeanStd:
      return {"mean", "std"};
    case NormalizationMode::kMinMax:
      return {"min", "max"};
    case NormalizationMode::kQuantiles:
      return {"q01", "q99"};
    case NormalizationMode::kQuantile10:
      return {"q10", "q90"};
    case NormalizationMode::kIdentity:
      break;
  }
  throw InternalError("IDENTITY needs no statistics");
}

NormalizationMode mode_of(const NormalizationMap& modes, FeatureType type) {
  for (const auto& [name, mode] : modes)
    if (name == config::to_string(type)) return mode;
  return NormalizationMode::kIdentity;
}

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool broadcasts_to(at::IntArrayRef from, at::IntArrayRef to) {
  if (from.size() > to.size()) return false;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    const std::int64_t size = from[from.size() - i];
    if (size != 1 && size != to[to.size() - i]) return false;
  }
  return true;
}

/// The statistic that a feature's mode needs, checked.
at::Tensor required_statistic(const dataset::DatasetStats& statistics, const std::string& key,
                              const config::PolicyFeature& feature, NormalizationMode mode,
                              const char* name) {
  const auto of_feature = statistics.find(key);
  if (of_feature == statistics.end())
    fail(
        "feature {} is normalised with {}, but there are no statistics of it: the dataset's "
        "meta/stats.json or the saved processor must have its {}. A camera that was renamed needs "
        "--rename_map; --policy.normalization_mapping can set its type to IDENTITY",
        key, config::to_string(mode), name);
  const auto found = of_feature->second.find(name);
  if (found == of_feature->second.end())
    fail(
        "feature {} is normalised with {}, which needs the statistic {}: the dataset's "
        "meta/stats.json or the saved processor lacks it. Recompute the statistics, or choose "
        "another mode in --policy.normalization_mapping",
        key, config::to_string(mode), name);
  const at::Tensor& value = found->second;
  if (!broadcasts_to(value.sizes(), feature.shape))
    fail("statistic {} of feature {} has shape {}, which does not fit the feature's shape {}", name,
         key, shape_text(value.sizes()), shape_text(feature.shape));
  const at::Tensor values = value.contiguous();
  const float* numbers = values.const_data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    if (!std::isfinite(numbers[i]))
      fail("statistic {} of feature {} is {} in dimension {}: recompute the dataset's statistics",
           name, key, numbers[i], i);
  }
  return value;
}

void warn_constant_dimensions(const std::string& key, NormalizationMode mode, const at::Tensor& low,
                              const at::Tensor& high) {
  const at::Tensor spread = (mode == NormalizationMode::kMeanStd ? high : high - low).contiguous();
  const float* numbers = spread.const_data_ptr<float>();
  std::vector<std::int64_t> constant;
  for (std::int64_t i = 0; i < spread.numel(); ++i)
    if (numbers[i] == 0.0F) constant.push_back(i);
  if (constant.empty()) return;
  const StatisticNames names = statistic_names(mode);
  const std::string what = mode == NormalizationMode::kMeanStd
                               ? "std is 0"
                               : fmt::format("{} equals {}", names.low, names.high);
  log::warning(
      "feature {}: constant in the dataset ({}) in dimension {}: any other value there "
      "becomes very large when it is normalised",
      key, what, fmt::join(constant, ", "));
}

at::Tensor range_or_eps(const at::Tensor& low, const at::Tensor& high, double eps) {
  const at::Tensor range = high - low;
  return at::where(range == 0, at::full_like(range, eps), range);
}

/// (x - low) / spread and so on, in LeRobot's order of operations. x is not changed.
at::Tensor normalized(NormalizationMode mode, const at::Tensor& x, const at::Tensor& low,
                      const at::Tensor& high, double eps) {
  at::Tensor y = x - low;
  if (mode == NormalizationMode::kMeanStd) return y.div_(high + eps);
  return y.mul_(2.0).div_(range_or_eps(low, high, eps)).sub_(1.0);
}

at::Tensor unnormalized(NormalizationMode mode, const at::Tensor& y, const at::Tensor& low,
                        const at::Tensor& high, double eps) {
  if (mode == NormalizationMode::kMeanStd) return (y * high).add_(low);
  const at::Tensor range = range_or_eps(low, high, eps);
  at::Tensor x = y + 1.0;
  if (mode == NormalizationMode::kMinMax) return x.div_(2.0).mul_(range).add_(low);
  return x.mul_(range).div_(2.0).add_(low);
}

/// out[..., c, h, w] = tables[c][pixels[..., c, h, w]], on all of torch's threads.
at::Tensor look_up(const at::Tensor& pixels, const at::Tensor& tables) {
  const std::int64_t channels = tables.size(0);
  at::Tensor out = at::empty(pixels.sizes(), at::kFloat);
  const at::Tensor channel = at::arange(channels, at::kLong).view({channels, 1, 1});
  auto iterator = at::TensorIteratorConfig()
                      .check_all_same_dtype(false)
                      .resize_outputs(false)
                      .add_output(out)
                      .add_const_input(pixels)
                      .add_const_input(channel)
                      .build();
  const float* table = tables.const_data_ptr<float>();
  const auto rows = [table](char** data, const std::int64_t* strides, std::int64_t n,
                            std::int64_t count) {
    for (std::int64_t row = 0; row < count; ++row) {
      char* to = data[0] + row * strides[3];
      const char* from = data[1] + row * strides[4];
      const char* number = data[2] + row * strides[5];
      for (std::int64_t i = 0; i < n; ++i) {
        const auto c = *reinterpret_cast<const std::int64_t*>(number + i * strides[2]);
        const auto pixel = *reinterpret_cast<const std::uint8_t*>(from + i * strides[1]);
        *reinterpret_cast<float*>(to + i * strides[0]) = table[c * kPixelValues + pixel];
      }
    }
  };
  iterator.for_each(at::TensorIterator::loop2d_t(rows));
  return out;
}

}  // namespace

NormalizerStep::NormalizerStep(Direction direction, NormalizerSettings settings,
                               const dataset::DatasetStats& statistics)
    : direction_(direction), settings_(std::move(settings)), statistics_(statistics) {
  for (auto& [key, feature] : statistics_)
    for (auto& [name, value] : feature) value = value.to(at::kCPU, at::kFloat);
  for (const auto& [key, feature] : settings_.features) {
    const auto found = statistics_.find(key);
    if (feature.type != FeatureType::kVisual || found == statistics_.end()) continue;
    for (auto& [name, value] : found->second)
      if (value.dim() == 1) value = value.view({-1, 1, 1});
  }
  for (const auto& [key, feature] : settings_.features) add_transform(key, feature);
}

void NormalizerStep::add_transform(const std::string& key, const config::PolicyFeature& feature) {
  // Of the actions only the one called "action" travels through a pipeline.
  if (feature.type == FeatureType::kAction
          ? key != "action"
          : settings_.observation_keys.has_value() &&
                std::ranges::count(*settings_.observation_keys, key) == 0)
    return;
  const NormalizationMode mode = mode_of(settings_.modes, feature.type);
  if (mode == NormalizationMode::kIdentity) {
    if (feature.type == FeatureType::kVisual) transforms_.push_back({key, mode, {}, {}});
    return;
  }
  const StatisticNames names = statistic_names(mode);
  Transform transform{key, mode, required_statistic(statistics_, key, feature, mode, names.low),
                      required_statistic(statistics_, key, feature, mode, names.high)};
  if (direction_ == Direction::kNormalize)
    warn_constant_dimensions(key, mode, transform.low, transform.high);
  transforms_.push_back(std::move(transform));
}

std::string NormalizerStep::name() const {
  return std::string(direction_ == Direction::kNormalize ? kNormalizerName : kUnnormalizerName);
}

Json NormalizerStep::config() const {
  Json json;
  json["eps"] = settings_.eps;
  json["features"] = config::Codec<config::FeatureMap>::write(settings_.features, nullptr);
  json["norm_map"] = config::Codec<NormalizationMap>::write(settings_.modes, nullptr);
  if (settings_.observation_keys) {
    std::vector<std::string> keys = *settings_.observation_keys;
    std::ranges::sort(keys);
    json["normalize_observation_keys"] = keys;
  }
  return json;
}

serialization::NamedTensors NormalizerStep::state() const {
  serialization::NamedTensors state;
  for (const auto& [key, feature] : statistics_)
    for (const auto& [name, value] : feature)
      state.emplace_back(fmt::format("{}.{}", key, name), value);
  return state;
}

void NormalizerStep::apply(dataset::Batch& batch) const {
  for (const Transform& transform : transforms_) {
    const auto found = batch.tensors.find(transform.key);
    if (found == batch.tensors.end()) continue;
    at::Tensor& value = found->second;
    value = value.scalar_type() == at::kByte && direction_ == Direction::kNormalize
                ? camera(transform, value)
                : transformed(transform, value);
  }
}

at::Tensor NormalizerStep::transformed(const Transform& transform, const at::Tensor& value) const {
  if (transform.mode == NormalizationMode::kIdentity) return value;
  const at::Tensor x = value.is_floating_point() ? value : value.to(at::kFloat);
  const at::Tensor low = transform.low.to(x.options());
  const at::Tensor high = transform.high.to(x.options());
  const auto formula = direction_ == Direction::kNormalize ? normalized : unnormalized;
  return formula(transform.mode, x, low, high, settings_.eps);
}

at::Tensor NormalizerStep::camera(const Transform& transform, const at::Tensor& pixels) const {
  const std::int64_t channels = pixels.dim() >= 3 ? pixels.size(-3) : 0;
  if (!pixels.device().is_cpu() || channels == 0)
    return transformed(transform, image_to_float(pixels));
  // A pixel has 256 values: what becomes of each is computed once, with the operations of the slow
  // way, and looked up.
  const at::Tensor values =
      image_to_float(at::arange(kPixelValues, at::kByte)).expand({channels, 1, kPixelValues});
  return look_up(pixels,
                 transformed(transform, values).contiguous().view({channels, kPixelValues}));
}

at::Tensor image_to_float(const at::Tensor& pixels) { return pixels.to(at::kFloat).div_(255.0); }

}  // namespace lerobot::processor
