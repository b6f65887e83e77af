// Encoders, U-Net and noise together: the loss of training and the making of actions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/dataset/batch.h"
#include "lerobot/nn/module.h"
#include "lerobot/policy/diffusion/diffusion_config.h"
#include "lerobot/policy/diffusion/diffusion_encoder.h"
#include "lerobot/policy/diffusion/diffusion_unet.h"
#include "lerobot/policy/diffusion/noise_schedule.h"

namespace lerobot::policy {

/// Only holds its parts: loss and predictions are functions of their own, so that it is no unit of
/// sharded training.
class DiffusionModel final : public nn::Module {
 public:
  DiffusionModel(const DiffusionConfig& config, bool load_pretrained_backbone);

  /// What the U-Net is conditioned on, (B, condition_size): of each observation step, oldest first,
  /// the state, every camera's features and the environment's state. States (B, O, n), cameras
  /// (B, O, 3, h, w), or (B, 3, h, w) when O is 1.
  at::Tensor condition(const dataset::Batch& batch);

  /// Mean squared error of the predicted noise (or actions), a 0-d tensor. Draws, in this order:
  /// crops (in training), the noise, a step for each sample.
  at::Tensor loss(const dataset::Batch& batch);

  /// The actions (B, n_action_steps or fewer, A) from the current observation on, drawn by
  /// starting from noise.
  at::Tensor generate(const dataset::Batch& batch);

  DiffusionUnet& unet() { return *unet_; }

 private:
  const at::Tensor& state_of(const dataset::Batch& batch, const Feature& feature) const;
  at::Tensor images_of(const dataset::Batch& batch, const Feature& camera) const;
  /// (B, O, 2K * cameras).
  at::Tensor image_features(const dataset::Batch& batch);

  DiffusionConfig config_;
  NoiseSchedule schedule_;
  std::shared_ptr<DiffusionRgbEncoder> shared_encoder_;                   // or
  std::shared_ptr<nn::ModuleList<DiffusionRgbEncoder>> camera_encoders_;  // or neither
  std::shared_ptr<DiffusionUnet> unet_;
};

}  // namespace lerobot::policy
