#include "lerobot/nn/conv1d.h"

#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/empty.h>

#include "lerobot/nn/convolution_lora.h"
#include "lerobot/nn/init.h"

namespace lerobot::nn {

Conv1d::Conv1d(std::int64_t in, std::int64_t out, const Conv1dOptions& options)
    : Callable("Conv1d"), options_(options) {
  weight = register_parameter("weight", at::empty({out, in, options.kernel}));
  init::default_weight(weight);
  if (!options.bias) return;
  bias = register_parameter("bias", at::empty({out}));
  init::default_bias(bias, init::fan_in(weight));
}

at::Tensor Conv1d::forward(const at::Tensor& x) const {
  const at::Tensor y = at::conv1d(x, weight, bias, options_.stride, options_.padding);
  return lora_ ? lora_.add_to(y, x) : y;
}

void Conv1d::add_lora(const LoraOptions& options) {
  lora_ = draw_convolution_lora(*this, options_, options);
  take_in_lora(lora_.a, lora_.b, weight.device());
}

ConvTranspose1d::ConvTranspose1d(std::int64_t in, std::int64_t out, const Conv1dOptions& options)
    : Callable("ConvTranspose1d"), options_(options) {
  // torch takes the fan from the second dimension here, too, although that is the output's.
  weight = register_parameter("weight", at::empty({in, out, options.kernel}));
  init::default_weight(weight);
  if (!options.bias) return;
  bias = register_parameter("bias", at::empty({out}));
  init::default_bias(bias, init::fan_in(weight));
}

at::Tensor ConvTranspose1d::forward(const at::Tensor& x) const {
  return at::conv_transpose1d(x, weight, bias, options_.stride, options_.padding);
}

}  // namespace lerobot::nn
