// Diffusion Policy (https://arxiv.org/abs/2303.04137): its options, in LeRobot's names, order and
// defaults.
#pragma once

#include <array>
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

struct DiffusionConfig final : config::PolicyConfig {
  DiffusionConfig() { n_obs_steps = 2; }

  std::int64_t horizon = 64;
  std::int64_t n_action_steps = 32;
  /// Without an entry for ENV: the environment's state stays as it is.
  processor::NormalizationMap normalization_mapping{{"VISUAL", config::NormalizationMode::kMeanStd},
                                                    {"STATE", config::NormalizationMode::kMinMax},
                                                    {"ACTION", config::NormalizationMode::kMinMax}};
  std::int64_t drop_n_last_frames = 7;
  std::string vision_backbone = "resnet18";
  std::optional<std::vector<std::int64_t>> resize_shape;
  double crop_ratio = 1.0;
  std::optional<std::vector<std::int64_t>> crop_shape;
  bool crop_is_random = true;
  std::optional<std::string> pretrained_backbone_weights = "ResNet18_Weights.IMAGENET1K_V1";
  bool use_group_norm = false;
  std::int64_t spatial_softmax_num_keypoints = 32;
  bool use_separate_rgb_encoder_per_camera = true;
  std::vector<std::int64_t> down_dims{512, 1024, 2048};
  std::int64_t kernel_size = 5;
  std::int64_t n_groups = 8;
  std::int64_t diffusion_step_embed_dim = 128;
  bool use_film_scale_modulation = true;
  bool gradient_checkpointing = false;
  std::string noise_scheduler_type = "DDPM";
  std::int64_t num_train_timesteps = 100;
  std::string beta_schedule = "squaredcos_cap_v2";
  double beta_start = 0.0001;
  double beta_end = 0.02;
  std::string prediction_type = "epsilon";
  bool clip_sample = true;
  double clip_sample_range = 1.0;
  std::optional<std::int64_t> num_inference_steps;
  bool compile_model = false;
  std::string compile_mode = "reduce-overhead";
  bool do_mask_loss_for_padding = false;
  double optimizer_lr = 1e-4;
  std::vector<double> optimizer_betas{0.95, 0.999};
  double optimizer_eps = 1e-8;
  double optimizer_weight_decay = 1e-6;
  std::string scheduler_name = "cosine";
  std::int64_t scheduler_warmup_steps = 500;

  std::string type() const override { return "diffusion"; }
  /// With resize_shape, crop_shape follows from crop_ratio.
  void derive() override;
  std::vector<std::string> validate() const override;
  config::DeltaIndices delta_indices() const override;
  std::int64_t drop_last_frames() const override { return drop_n_last_frames; }
  config::OptimizerConfig optimizer_preset() const override;
  std::optional<config::SchedulerConfig> scheduler_preset() const override;
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

  /// Height and width of the images that the backbone sees: the crop's, or the resized one's, or
  /// the cameras'. There must be a camera.
  std::array<std::int64_t, 2> image_size() const;
  /// Elements of the vector that conditions the U-Net, of all observation steps.
  std::int64_t condition_size() const;
};

BOOST_DESCRIBE_STRUCT(DiffusionConfig, (config::PolicyConfig),
                      (horizon, n_action_steps, normalization_mapping, drop_n_last_frames,
                       vision_backbone, resize_shape, crop_ratio, crop_shape, crop_is_random,
                       pretrained_backbone_weights, use_group_norm, spatial_softmax_num_keypoints,
                       use_separate_rgb_encoder_per_camera, down_dims, kernel_size, n_groups,
                       diffusion_step_embed_dim, use_film_scale_modulation, gradient_checkpointing,
                       noise_scheduler_type, num_train_timesteps, beta_schedule, beta_start,
                       beta_end, prediction_type, clip_sample, clip_sample_range,
                       num_inference_steps, compile_model, compile_mode, do_mask_loss_for_padding,
                       optimizer_lr, optimizer_betas, optimizer_eps, optimizer_weight_decay,
                       scheduler_name, scheduler_warmup_steps))

config::HelpTexts option_help(const DiffusionConfig*);

}  // namespace lerobot::policy
