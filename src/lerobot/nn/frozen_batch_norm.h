// Batch normalisation whose statistics and weights never change (torchvision's FrozenBatchNorm2d).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/channel_norm.h"

namespace lerobot::nn {

/// y = x * s + (bias - running_mean * s), s = weight / sqrt(running_var + 1e-5), a channel. All
/// four tensors are buffers.
class FrozenBatchNorm2d final : public ChannelNorm {
 public:
  explicit FrozenBatchNorm2d(std::int64_t channels);

  /// x (B, C, H, W).
  at::Tensor forward(at::Tensor x, const at::Tensor& residual = {},
                     Activation activation = Activation::kNone) override;

  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
};

}  // namespace lerobot::nn
