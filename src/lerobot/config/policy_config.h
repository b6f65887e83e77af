// What every policy's configuration has in common (LeRobot's PreTrainedConfig), and what training
// asks of it. One policy's own fields live in its folder under policy/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lerobot/config/optim_config.h"

namespace lerobot::config {

enum class FeatureType { kState, kVisual, kEnv, kAction, kReward, kLanguage };

/// A feature as a policy sees it. Shapes of cameras are (C, H, W).
struct PolicyFeature {
  FeatureType type = FeatureType::kState;
  std::vector<std::int64_t> shape;
  bool operator==(const PolicyFeature&) const = default;
};

/// Keeps the order of the file or of the dataset: it decides the order of cameras.
using FeatureMap = std::vector<std::pair<std::string, PolicyFeature>>;

enum class NormalizationMode { kIdentity, kMeanStd, kMinMax, kQuantiles, kQuantile10 };

/// Frame offsets (in frames of the dataset, relative to the sample's frame) that a policy needs.
/// Empty: the feature is read at the sample's frame only, without a time axis.
struct DeltaIndices {
  std::vector<std::int64_t> observation;  // observation.state and other non-image observations
  std::vector<std::int64_t> image;        // observation.image*
  std::vector<std::int64_t> action;
  std::vector<std::int64_t> reward;
};

struct PolicyConfig {
  virtual ~PolicyConfig() = default;

  std::int64_t n_obs_steps = 1;
  FeatureMap input_features;
  FeatureMap output_features;
  std::optional<std::string> device;
  bool use_amp = false;
  bool use_peft = false;
  bool push_to_hub = true;
  std::optional<std::string> repo_id;
  std::optional<bool> private_;  // "private" in files and on the command line
  std::optional<std::vector<std::string>> tags;
  std::optional<std::string> license;
  std::optional<std::string> pretrained_path;
  std::optional<std::string> pretrained_revision;

  /// The name that --policy.type takes, for instance "act".
  virtual std::string type() const = 0;
  /// Every rule that these fields break, one message each, naming the option ("policy.chunk_size").
  virtual std::vector<std::string> validate() const = 0;
  virtual DeltaIndices delta_indices() const = 0;
  /// Frames at the end of an episode that are not sampled (LeRobot's drop_n_last_frames).
  virtual std::int64_t drop_last_frames() const { return 0; }
  virtual OptimizerConfig optimizer_preset() const = 0;
  virtual std::optional<SchedulerConfig> scheduler_preset() const { return std::nullopt; }
  virtual std::unique_ptr<PolicyConfig> clone() const = 0;
};

}  // namespace lerobot::config
