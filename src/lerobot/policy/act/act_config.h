// Action Chunking Transformer (https://arxiv.org/abs/2304.13705): its options, in LeRobot's names,
// order and defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/describe/class.hpp>

#include "lerobot/config/option_help.h"
#include "lerobot/config/policy_config.h"
#include "lerobot/policy/policy_features.h"
#include "lerobot/processor/pipeline.h"

namespace lerobot::policy {

struct ActConfig final : config::PolicyConfig {
  std::int64_t chunk_size = 100;
  std::int64_t n_action_steps = 100;
  processor::NormalizationMap normalization_mapping{
      {"VISUAL", config::NormalizationMode::kMeanStd},
      {"STATE", config::NormalizationMode::kMeanStd},
      {"ACTION", config::NormalizationMode::kMeanStd}};
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
  std::vector<std::string> validate() const override;
  config::DeltaIndices delta_indices() const override;
  config::OptimizerConfig optimizer_preset() const override;
  std::unique_ptr<config::PolicyConfig> clone() const override;

  /// The features that the model uses; null when absent: the robot's state is exactly
  /// "observation.state", the environment's the first ENV feature, the action exactly "action".
  const Feature* robot_state() const;
  const Feature* environment_state() const;
  const Feature* action() const;
  /// Cameras in the order of input_features.
  std::vector<const Feature*> cameras() const;
  /// What is wrong with the features, one message each.
  std::vector<std::string> feature_problems() const;
};

BOOST_DESCRIBE_STRUCT(ActConfig, (config::PolicyConfig),
                      (chunk_size, n_action_steps, normalization_mapping, vision_backbone,
                       pretrained_backbone_weights, replace_final_stride_with_dilation, pre_norm,
                       dim_model, n_heads, dim_feedforward, feedforward_activation,
                       n_encoder_layers, n_decoder_layers, use_vae, latent_dim,
                       n_vae_encoder_layers, temporal_ensemble_coeff, dropout, kl_weight,
                       optimizer_lr, optimizer_weight_decay, optimizer_lr_backbone))

config::HelpTexts option_help(const ActConfig*);

}  // namespace lerobot::policy
