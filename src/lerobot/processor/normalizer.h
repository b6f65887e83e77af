// Normalisation of observations and actions by dataset statistics (LeRobot's normalizer_processor
// and unnormalizer_processor).
//
//   MEAN_STD    (x - mean) / (std + eps)              back: y * std + mean
//   MIN_MAX     2 (x - min) / (max - min) - 1         back: (y + 1) / 2 * (max - min) + min
//   QUANTILES   as MIN_MAX with q01 and q99; QUANTILE10 with q10 and q90
//   IDENTITY    unchanged, as are features whose type has no mode
//
// A range of zero is replaced by eps. Statistics are cast to the type of the input.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/processor/pipeline.h"

namespace lerobot::processor {

struct NormalizerSettings {
  double eps = 1e-8;
  config::FeatureMap features;
  NormalizationMap modes;
  /// Only these observations; unset: all.
  std::optional<std::vector<std::string>> observation_keys;
};

/// Both directions share everything but the formula.
class NormalizerStep final : public Step {
 public:
  enum class Direction { kNormalize, kUnnormalize };
  static constexpr std::string_view kNormalizerName = "normalizer_processor";
  static constexpr std::string_view kUnnormalizerName = "unnormalizer_processor";

  /// Throws Error naming feature and statistic when a feature's mode needs a statistic that is
  /// missing, does not fit the feature's shape, or is not finite. Normalising warns, once for each
  /// feature, about dimensions that are constant in the dataset.
  NormalizerStep(Direction direction, NormalizerSettings settings,
                 const dataset::DatasetStats& statistics);

  std::string name() const override;
  Json config() const override;
  /// "<feature>.<statistic>" for every feature of the statistics, also those it never touches.
  serialization::NamedTensors state() const override;
  /// A camera that is still uint8 is taken as fractions of 255, in the same pass: bit for bit what
  /// LeRobot gets by dividing first. Integers become float32. Features that the batch lacks are
  /// passed over.
  void apply(dataset::Batch& batch) const override;

 private:
  /// One feature that is changed.
  struct Transform {
    std::string key;
    config::NormalizationMode mode;
    at::Tensor low;   // mean, min, q01, q10
    at::Tensor high;  // std, max, q99, q90
  };

  void add_transform(const std::string& key, const config::PolicyFeature& feature);
  at::Tensor transformed(const Transform& transform, const at::Tensor& value) const;
  at::Tensor camera(const Transform& transform, const at::Tensor& pixels) const;

  Direction direction_;
  NormalizerSettings settings_;
  dataset::DatasetStats statistics_;
  std::vector<Transform> transforms_;
};

/// uint8 pixels as float32 fractions of 255.
at::Tensor image_to_float(const at::Tensor& pixels);

}  // namespace lerobot::processor
