// Batch normalisation whose statistics and weights never change (torchvision's FrozenBatchNorm2d).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/module.h"

namespace lerobot::nn {

enum class Activation { kNone, kRelu };

/// y = x * s + (bias - running_mean * s), s = weight / sqrt(running_var + 1e-5), a channel; then
/// + residual, then the activation. All four tensors are buffers.
class FrozenBatchNorm2d final : public Callable<FrozenBatchNorm2d> {
 public:
  explicit FrozenBatchNorm2d(std::int64_t channels);

  /// x (B, C, H, W), whose memory is reused where that is possible: it must be an intermediate
  /// result that nothing else needs, as a convolution's output is. `residual` of x's shape, or
  /// undefined.
  at::Tensor forward(at::Tensor x, const at::Tensor& residual, Activation activation) const;

  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
};

}  // namespace lerobot::nn
