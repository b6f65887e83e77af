// What every policy's configuration has in common (LeRobot's PreTrainedConfig), and what training
// asks of it. One policy's own fields live in its folder under policy/.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/describe/class.hpp>

#include "lerobot/base/json.h"
#include "lerobot/config/optim_config.h"

namespace lerobot::config {

enum class FeatureType { kState, kVisual, kEnv, kAction, kReward, kLanguage };

/// Every FeatureType with its name in files ("STATE").
constexpr std::array<std::pair<FeatureType, std::string_view>, 6> enum_names(FeatureType) {
  return {{{FeatureType::kState, "STATE"},
           {FeatureType::kVisual, "VISUAL"},
           {FeatureType::kEnv, "ENV"},
           {FeatureType::kAction, "ACTION"},
           {FeatureType::kReward, "REWARD"},
           {FeatureType::kLanguage, "LANGUAGE"}}};
}

/// A feature as a policy sees it. Shapes of cameras are (C, H, W).
struct PolicyFeature {
  FeatureType type = FeatureType::kState;
  std::vector<std::int64_t> shape;
  bool operator==(const PolicyFeature&) const = default;
};
BOOST_DESCRIBE_STRUCT(PolicyFeature, (), (type, shape))

/// Keeps the order of the file or of the dataset: it decides the order of cameras.
using FeatureMap = std::vector<std::pair<std::string, PolicyFeature>>;

enum class NormalizationMode { kIdentity, kMeanStd, kMinMax, kQuantiles, kQuantile10 };

/// Every NormalizationMode with its name in files ("MEAN_STD").
constexpr std::array<std::pair<NormalizationMode, std::string_view>, 5> enum_names(
    NormalizationMode) {
  return {{{NormalizationMode::kIdentity, "IDENTITY"},
           {NormalizationMode::kMeanStd, "MEAN_STD"},
           {NormalizationMode::kMinMax, "MIN_MAX"},
           {NormalizationMode::kQuantiles, "QUANTILES"},
           {NormalizationMode::kQuantile10, "QUANTILE10"}}};
}

/// The name in files of an enumerator that enum_names() lists.
template <class Enum>
constexpr auto to_string(Enum value) -> decltype(enum_names(value)[0].second) {
  for (const auto& [candidate, name] : enum_names(value))
    if (candidate == value) return name;
  return {};
}

/// Frame offsets (in frames of the dataset, relative to the sample's frame) that a policy needs.
/// Empty: the feature is read at the sample's frame only, without a time axis.
struct DeltaIndices {
  std::vector<std::int64_t> observation;  // observation.state and other non-image observations
  std::vector<std::int64_t> image;        // observation.image*
  std::vector<std::int64_t> action;
  std::vector<std::int64_t> reward;
};

/// Which modules of a policy get adapters (--peft.*), and which are trained whole beside them.
struct AdapterTargets {
  Json modules;  // endings of names as a list, a regular expression, or "all-linear"
  std::vector<std::string> full_training_modules;
};

struct PolicyConfig {
  virtual ~PolicyConfig() = default;

  std::int64_t n_obs_steps = 1;
  FeatureMap input_features;
  FeatureMap output_features;
  std::optional<std::string> device;
  bool use_amp = false;
  bool use_peft = false;
  /// LeRobot's default is true, and then it asks for repo_id. Publishing is not supported yet: the
  /// command line turns a true that nobody wrote into false and says so once, and refuses a true
  /// that the command line or a file gives.
  bool push_to_hub = true;
  std::optional<std::string> repo_id;
  std::optional<bool> private_;  // "private" in files and on the command line
  std::optional<std::vector<std::string>> tags;
  std::optional<std::string> license;
  std::optional<std::string> pretrained_path;
  std::optional<std::string> pretrained_revision;

  /// The name that --policy.type takes, for instance "act".
  virtual std::string type() const = 0;
  /// Sets the fields that follow from others, once all files and the command line have been read.
  virtual void derive() {}
  /// Every rule that these fields break, one message each, naming the option ("policy.chunk_size").
  virtual std::vector<std::string> validate() const = 0;
  virtual DeltaIndices delta_indices() const = 0;
  /// Frames at the end of an episode that are not sampled (LeRobot's drop_n_last_frames).
  virtual std::int64_t drop_last_frames() const { return 0; }
  virtual OptimizerConfig optimizer_preset() const = 0;
  virtual std::optional<SchedulerConfig> scheduler_preset() const { return std::nullopt; }
  /// What adapters are put on when --peft.target_modules says nothing.
  virtual std::optional<AdapterTargets> default_adapter_targets() const { return std::nullopt; }
  virtual std::unique_ptr<PolicyConfig> clone() const = 0;
};
BOOST_DESCRIBE_STRUCT(PolicyConfig, (),
                      (n_obs_steps, input_features, output_features, device, use_amp, use_peft,
                       push_to_hub, repo_id, private_, tags, license, pretrained_path,
                       pretrained_revision))

}  // namespace lerobot::config
