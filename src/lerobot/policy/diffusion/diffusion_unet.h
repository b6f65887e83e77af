// The network that tells noise from actions: a U-Net over time with residual blocks that are
// conditioned on the noise step and the observations. Tensors are (B, channels, time) inside.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/channel_norm.h"
#include "lerobot/nn/conv1d.h"
#include "lerobot/nn/layers.h"
#include "lerobot/nn/module.h"
#include "lerobot/policy/diffusion/diffusion_config.h"

namespace lerobot::policy {

/// Steps (B) int64 -> (B, size): sines, then cosines, of the step at size / 2 frequencies from 1
/// down to 1/10000.
at::Tensor step_embedding(const at::Tensor& steps, std::int64_t size);

/// The embedding of a noise step, through two layers.
class DiffusionStepEncoder final : public nn::Callable<DiffusionStepEncoder> {
 public:
  explicit DiffusionStepEncoder(std::int64_t size);
  /// (B) int64 -> (B, size).
  at::Tensor forward(const at::Tensor& steps);

 private:
  std::int64_t size_;
  std::shared_ptr<nn::Linear> widen_;
  std::shared_ptr<nn::Linear> narrow_;
};

/// Convolution that keeps the length, normalisation of `groups` groups, Mish.
class DiffusionConv1dBlock final : public nn::Callable<DiffusionConv1dBlock> {
 public:
  DiffusionConv1dBlock(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t groups);
  at::Tensor forward(const at::Tensor& x);

 private:
  std::shared_ptr<nn::Conv1d> convolution_;
  std::shared_ptr<nn::GroupNorm> norm_;
};

/// Two convolution blocks and a way around them; between the two the condition scales and shifts
/// the channels.
class DiffusionResidualBlock final : public nn::Callable<DiffusionResidualBlock> {
 public:
  DiffusionResidualBlock(std::int64_t in, std::int64_t out, std::int64_t condition,
                         const DiffusionConfig& config);
  /// x (B, in, time), condition (B, condition) -> (B, out, time). `shortcut` is x again, for the
  /// way around: apart, because a recomputed block then hands on both gradients of x, which are
  /// added up in the same order as those of a plain one.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& condition, const at::Tensor& shortcut);

 private:
  bool scales_;
  std::shared_ptr<DiffusionConv1dBlock> conv1_;
  std::shared_ptr<nn::Linear> cond_encoder_;
  std::shared_ptr<DiffusionConv1dBlock> conv2_;
  std::shared_ptr<nn::Conv1d> residual_conv_;  // null when the channels stay the same
};

class DiffusionUnet final : public nn::Callable<DiffusionUnet> {
 public:
  /// Draws its weights from the global CPU generator, in the order of the parameters.
  explicit DiffusionUnet(const DiffusionConfig& config);

  /// Noisy actions x (B, H, A), their steps (B) int64 and the condition (B, condition_size) ->
  /// (B, H, A).
  at::Tensor forward(const at::Tensor& x, const at::Tensor& steps, const at::Tensor& condition);

 private:
  /// Two blocks and what changes the length behind them.
  template <class Resample>
  struct Level final : nn::Module {
    Level(std::shared_ptr<DiffusionResidualBlock> first_block,
          std::shared_ptr<DiffusionResidualBlock> second_block,
          std::shared_ptr<Resample> behind_them)
        : Module("ModuleList"),
          first(register_module("0", std::move(first_block))),
          second(register_module("1", std::move(second_block))),
          resample(std::move(behind_them)) {
      if (resample) register_module("2", resample);
    }
    std::shared_ptr<DiffusionResidualBlock> first;
    std::shared_ptr<DiffusionResidualBlock> second;
    std::shared_ptr<Resample> resample;  // null: the length stays
  };
  using DownLevel = Level<nn::Conv1d>;
  using UpLevel = Level<nn::ConvTranspose1d>;

  at::Tensor run(DiffusionResidualBlock& block, const at::Tensor& x, const at::Tensor& condition);

  bool recomputes_;
  std::shared_ptr<DiffusionStepEncoder> step_encoder_;
  std::shared_ptr<nn::ModuleList<DownLevel>> down_;
  std::shared_ptr<nn::ModuleList<DiffusionResidualBlock>> mid_;
  std::shared_ptr<nn::ModuleList<UpLevel>> up_;
  std::shared_ptr<DiffusionConv1dBlock> final_block_;
  std::shared_ptr<nn::Conv1d> final_conv_;
};

}  // namespace lerobot::policy
