// A policy configuration with ACT's fields, order and defaults, so that LeRobot's files can be read
// and written below the room of policies.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/reflection.h"

namespace lerobot::config::test {

struct ActLikeConfig final : PolicyConfig {
  std::int64_t chunk_size = 100;
  std::int64_t n_action_steps = 100;
  std::vector<std::pair<std::string, NormalizationMode>> normalization_mapping{
      {"VISUAL", NormalizationMode::kMeanStd},
      {"STATE", NormalizationMode::kMeanStd},
      {"ACTION", NormalizationMode::kMeanStd}};
  std::string vision_backbone = "resnet18";
  std::optional<std::string> pretrained_backbone_weights = "ResNet18_Weights.IMAGENET1K_V1";
  bool replace_final_stride_with_dilation = false;
  bool pre_norm = false;
  std::int64_t dim_model = 512;
  std::int64_t n_heads = 8;
  std::int64_t dim_feedforward = 3200;
  std::string feedforward_activation = "relu";
  std::int64_t n_encoder_layers = 4;
  std::int64_t n_decoder_layers = 1;
  bool use_vae = true;
  std::int64_t latent_dim = 32;
  std::int64_t n_vae_encoder_layers = 4;
  std::optional<double> temporal_ensemble_coeff;
  double dropout = 0.1;
  double kl_weight = 10.0;
  double optimizer_lr = 1e-5;
  double optimizer_weight_decay = 1e-4;
  double optimizer_lr_backbone = 1e-5;

  std::string type() const override { return "act"; }
  std::vector<std::string> validate() const override {
    if (n_action_steps <= chunk_size) return {};
    return {"policy.n_action_steps=" + std::to_string(n_action_steps) +
            ": must be at most policy.chunk_size=" + std::to_string(chunk_size)};
  }
  DeltaIndices delta_indices() const override { return {}; }
  OptimizerConfig optimizer_preset() const override {
    return AdamWConfig{.lr = optimizer_lr, .weight_decay = optimizer_weight_decay};
  }
  std::unique_ptr<PolicyConfig> clone() const override {
    return std::make_unique<ActLikeConfig>(*this);
  }
};
BOOST_DESCRIBE_STRUCT(ActLikeConfig, (PolicyConfig),
                      (chunk_size, n_action_steps, normalization_mapping, vision_backbone,
                       pretrained_backbone_weights, replace_final_stride_with_dilation, pre_norm,
                       dim_model, n_heads, dim_feedforward, feedforward_activation,
                       n_encoder_layers, n_decoder_layers, use_vae, latent_dim,
                       n_vae_encoder_layers, temporal_ensemble_coeff, dropout, kl_weight,
                       optimizer_lr, optimizer_weight_decay, optimizer_lr_backbone))

inline HelpTexts option_help(const ActLikeConfig*) {
  return {
      {"chunk_size", "actions predicted at once", at_least(1)},
      {"dropout", "share of dropped activations", half_open(0, 1)},
  };
}

/// A policy whose preset has a scheduler.
struct DiffusionLikeConfig final : PolicyConfig {
  std::int64_t horizon = 16;
  double optimizer_lr = 1e-4;
  std::int64_t scheduler_warmup_steps = 500;

  std::string type() const override { return "diffusion"; }
  std::vector<std::string> validate() const override { return {}; }
  DeltaIndices delta_indices() const override { return {}; }
  OptimizerConfig optimizer_preset() const override {
    return AdamConfig{.lr = optimizer_lr, .weight_decay = 1e-6, .betas = {0.95, 0.999}};
  }
  std::optional<SchedulerConfig> scheduler_preset() const override {
    return DiffuserSchedulerConfig{.num_warmup_steps = scheduler_warmup_steps};
  }
  std::unique_ptr<PolicyConfig> clone() const override {
    return std::make_unique<DiffusionLikeConfig>(*this);
  }
};
BOOST_DESCRIBE_STRUCT(DiffusionLikeConfig, (PolicyConfig),
                      (horizon, optimizer_lr, scheduler_warmup_steps))

inline const PolicyTypes& policies() {
  static const PolicyTypes types{policy_type<ActLikeConfig>(), policy_type<DiffusionLikeConfig>()};
  return types;
}

using Words = std::vector<std::string>;

inline TrainCommandLine parse(const Words& words) {
  return parse_train_command_line(words, policies());
}

/// The options that a plain run needs, and more.
inline Words plain(std::initializer_list<std::string> more) {
  Words words{"--dataset.repo_id=someone/data", "--policy.type=act"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The lines of the UsageError that parsing throws; empty when it throws none.
inline std::string problems(const Words& words) {
  try {
    parse(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

inline const ActLikeConfig& act(const TrainCommandLine& command_line) {
  return dynamic_cast<const ActLikeConfig&>(*command_line.config.policy);
}

inline const std::string kCheckpoints = std::string(LEROBOT_TEST_DATA) + "/checkpoints";

}  // namespace lerobot::config::test
