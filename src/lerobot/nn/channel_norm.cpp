#include "lerobot/nn/channel_norm.h"

#include <ATen/Context.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/parameter_type.h"

namespace lerobot::nn {
namespace {

constexpr double kEps = 1e-5;

/// In the memory of `normalized`, which no backward needs.
at::Tensor finished(at::Tensor normalized, const at::Tensor& residual, Activation activation) {
  if (residual.defined()) normalized.add_(residual);
  if (activation == Activation::kRelu) normalized.relu_();
  return normalized;
}

}  // namespace

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels)
    : ChannelNorm("GroupNorm"), groups_(groups) {
  check_internal(groups > 0 && channels % groups == 0, "groups that do not divide the channels");
  weight = register_parameter("weight", at::ones({channels}));
  bias = register_parameter("bias", at::zeros({channels}));
}

at::Tensor GroupNorm::forward(at::Tensor x, const at::Tensor& residual, Activation activation) {
  return finished(at::group_norm(x, groups_, parameter_for(x, weight), parameter_for(x, bias), kEps,
                                 at::globalContext().userEnabledCuDNN()),
                  residual, activation);
}

BatchNorm2d::BatchNorm2d(std::int64_t channels) : ChannelNorm("BatchNorm2d") {
  weight = register_parameter("weight", at::ones({channels}));
  bias = register_parameter("bias", at::zeros({channels}));
  running_mean = register_buffer("running_mean", at::zeros({channels}), BufferKind::kRunning);
  running_var = register_buffer("running_var", at::ones({channels}), BufferKind::kRunning);
  num_batches_tracked =
      register_buffer("num_batches_tracked", at::zeros({}, at::kLong), BufferKind::kRunning);
}

at::Tensor BatchNorm2d::forward(at::Tensor x, const at::Tensor& residual, Activation activation) {
  constexpr double kNewShare = 0.1;
  if (is_training()) {
    const c10::AutoGradMode no_grad(false);
    num_batches_tracked.add_(1);
  }
  // Sharded training computes with parameters of low precision; the statistics stay float32.
  const at::ScalarType type = running_mean.scalar_type();
  return finished(
      at::batch_norm(x, weight.to(type), bias.to(type), running_mean, running_var, is_training(),
                     kNewShare, kEps, at::globalContext().userEnabledCuDNN()),
      residual, activation);
}

}  // namespace lerobot::nn
