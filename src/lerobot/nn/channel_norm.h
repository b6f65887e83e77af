// What stands behind a convolution: a normalisation that treats the channels of x (B, C, ...)
// apart.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/module.h"

namespace lerobot::nn {

enum class Activation { kNone, kRelu };

/// The normalised x, + residual, then the activation. Implementations differ in where mean and
/// variance come from.
class ChannelNorm : public Callable<ChannelNorm> {
 public:
  using Callable::Callable;

  /// x (B, C, ...), whose memory may be reused: it must be an intermediate result that nothing else
  /// needs, as a convolution's output is. `residual` of x's shape, or undefined.
  virtual at::Tensor forward(at::Tensor x, const at::Tensor& residual = {},
                             Activation activation = Activation::kNone) = 0;
};

/// Over each sample's groups of channels. weight and bias (channels), eps 1e-5.
class GroupNorm final : public ChannelNorm {
 public:
  /// `groups` must divide `channels`.
  GroupNorm(std::int64_t groups, std::int64_t channels);
  at::Tensor forward(at::Tensor x, const at::Tensor& residual = {},
                     Activation activation = Activation::kNone) override;

  at::Tensor weight;
  at::Tensor bias;

 private:
  std::int64_t groups_;
};

/// Over a batch of maps (B, C, H, W): in training mode with the statistics of the batch, of which a
/// tenth goes into the running ones; else with the running ones. Each rank has the batch of its
/// own. weight and bias (channels), eps 1e-5.
class BatchNorm2d final : public ChannelNorm {
 public:
  explicit BatchNorm2d(std::int64_t channels);
  /// In training mode x must have more than one value a channel.
  at::Tensor forward(at::Tensor x, const at::Tensor& residual = {},
                     Activation activation = Activation::kNone) override;

  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches_tracked;  // int64, a single number
};

}  // namespace lerobot::nn
