#include "lerobot/nn/frozen_batch_norm.h"

#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lerobot/nn/cpu_loops.h"
#include "lerobot/nn/elementwise.h"

namespace lerobot::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// One pass over a map instead of up to four; and one on the way back.
class AffineFunction : public Function<AffineFunction> {
 public:
  /// scale and shift (1, C, 1, 1); x and residual dense with the same strides.
  static at::Tensor forward(AutogradContext* ctx, at::Tensor x, const at::Tensor& scale,
                            const at::Tensor& shift, const std::optional<at::Tensor>& residual,
                            bool relu) {
    const bool add = residual.has_value();
    auto config = elementwise();
    config.add_output(x).add_const_input(scale).add_const_input(shift);
    if (add) config.add_const_input(*residual);
    for_each_row(config.build(), [=](char** data, const std::int64_t* strides, std::int64_t n) {
      const float* other = add ? floats(data[3]) : nullptr;
      if (strides[1] == 0) {  // a run inside one channel (planes)
        cpu::affine(floats(data[0]), *floats(data[1]), *floats(data[2]), other, relu, n);
      } else {  // channels lie side by side
        cpu::affine_each(floats(data[0]), floats(data[1]), floats(data[2]), other, relu, n);
      }
    });
    ctx->mark_dirty({x});
    ctx->save_for_backward(relu ? variable_list{scale, x} : variable_list{scale});
    ctx->saved_data["relu"] = relu;
    ctx->saved_data["add"] = add;
    return x;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const bool relu = ctx->saved_data["relu"].toBool();
    const bool add = ctx->saved_data["add"].toBool();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& scale = saved[0];
    // The strides of y decide about the walk.
    const at::Tensor dy = relu ? (gradients[0].strides() == saved[1].strides()
                                      ? gradients[0]
                                      : at::empty_like(saved[1]).copy_(gradients[0]))
                               : gradients[0].contiguous(gradients[0].suggest_memory_format());
    const at::Tensor& y = relu ? saved[1] : dy;
    const bool add_through = add && relu;  // without relu the residual's gradient is dy itself
    at::Tensor dx = at::empty_like(dy);
    at::Tensor dresidual = add_through ? at::empty_like(dy) : (add ? dy : at::Tensor());
    auto config = elementwise();
    config.add_output(dx);
    if (add_through) config.add_output(dresidual);
    config.add_const_input(dy).add_const_input(y).add_const_input(scale);
    const int in = add_through ? 2 : 1;
    for_each_row(config.build(), [=](char** data, const std::int64_t* strides, std::int64_t n) {
      float* through = add_through ? floats(data[1]) : nullptr;
      if (strides[in + 2] == 0) {
        cpu::affine_backward(floats(data[0]), through, floats(data[in]), floats(data[in + 1]),
                             *floats(data[in + 2]), relu, n);
      } else {
        cpu::affine_backward_each(floats(data[0]), through, floats(data[in]), floats(data[in + 1]),
                                  floats(data[in + 2]), relu, n);
      }
    });
    return {dx, at::Tensor(), at::Tensor(), dresidual, at::Tensor()};
  }
};

bool fusable(const at::Tensor& x, const at::Tensor& residual) {
  if (!x.device().is_cpu() || x.scalar_type() != at::kFloat || x.numel() == 0) return false;
  // The output's innermost stride must be one element, with channels or columns innermost.
  if (!x.is_contiguous() && !x.is_contiguous(at::MemoryFormat::ChannelsLast)) return false;
  return !residual.defined() ||
         (residual.scalar_type() == at::kFloat && residual.sizes() == x.sizes() &&
          residual.strides() == x.strides());
}

}  // namespace

FrozenBatchNorm2d::FrozenBatchNorm2d(std::int64_t channels) : ChannelNorm("FrozenBatchNorm2d") {
  weight = register_buffer("weight", at::ones({channels}));
  bias = register_buffer("bias", at::zeros({channels}));
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
}

at::Tensor FrozenBatchNorm2d::forward(at::Tensor x, const at::Tensor& residual,
                                      Activation activation) {
  constexpr double kEps = 1e-5;
  const at::Tensor scale = weight * (running_var + kEps).rsqrt();
  const at::Tensor shift = bias - running_mean * scale;
  const at::Tensor scale_4d = scale.view({1, -1, 1, 1});
  const at::Tensor shift_4d = shift.view({1, -1, 1, 1});
  const bool relu = activation == Activation::kRelu;
  if (fusable(x, residual))
    return AffineFunction::apply(
        x, scale_4d, shift_4d,
        residual.defined() ? std::optional<at::Tensor>(residual) : std::nullopt, relu);
  at::Tensor y = x * scale_4d + shift_4d;
  if (residual.defined()) y = y + residual;
  return relu ? at::relu(y) : y;
}

}  // namespace lerobot::nn
