#include "lerobot/nn/layers.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/convolution_lora.h"
#include "lerobot/nn/init.h"
#include "lerobot/nn/parameter_type.h"

namespace lerobot::nn {

Linear::Linear(std::int64_t in, std::int64_t out, std::string class_name, bool has_bias)
    : Callable(std::move(class_name)) {
  weight = register_parameter("weight", at::empty({out, in}));
  init::default_weight(weight);
  if (!has_bias) return;
  bias = register_parameter("bias", at::empty({out}));
  init::default_bias(bias, in);
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  if (!lora_ || lora_use_ == LoraUse::kNone) return at::linear(x, weight, bias);
  if (lora_use_ == LoraUse::kBeside) return lora_.add_to(at::linear(x, weight, bias), x);
  const at::Tensor update = lora_.weight_update(weight.scalar_type());
  return at::linear(x, weight + update + update.detach(), bias);
}

void Linear::add_lora(const LoraOptions& options) {
  lora_ = draw_lora(weight, options);
  take_in_lora(lora_.a, lora_.b, weight.device());
}

LoraPair<Linear> draw_lora(const at::Tensor& weight, const LoraOptions& options) {
  LoraPair<Linear> pair;
  pair.scaling = options.scaling();
  pair.a = std::make_shared<Linear>(weight.size(1), options.r, "Linear", /*has_bias=*/false);
  pair.b = std::make_shared<Linear>(options.r, weight.size(0), "Linear", /*has_bias=*/false);
  init_lora(pair.a->weight, pair.b->weight, weight, options);
  return pair;
}

LayerNorm::LayerNorm(std::int64_t size) : Callable("LayerNorm") {
  weight = register_parameter("weight", at::ones({size}));
  bias = register_parameter("bias", at::zeros({size}));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  constexpr double kEps = 1e-5;
  return at::layer_norm(x, weight.sizes(), parameter_for(x, weight), parameter_for(x, bias), kEps);
}

Embedding::Embedding(std::int64_t rows, std::int64_t size) : Module("Embedding") {
  weight = register_parameter("weight", at::empty({rows, size}));
  init::normal(weight, 0.0, 1.0);
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, const Conv2dOptions& options)
    : Callable("Conv2d"), options_(options) {
  weight = register_parameter("weight", at::empty({out, in, options.kernel, options.kernel}));
  init::default_weight(weight);
  if (options.bias) {
    bias = register_parameter("bias", at::empty({out}));
    init::default_bias(bias, init::fan_in(weight));
  }
}

at::Tensor Conv2d::forward(const at::Tensor& x) const {
  const at::Tensor y =
      at::conv2d(x, weight, bias, options_.stride, options_.padding, options_.dilation);
  return lora_ ? lora_.add_to(y, x) : y;
}

void Conv2d::add_lora(const LoraOptions& options) {
  if (options_.dilation != 1)
    fail("a convolution with dilation {} cannot have an adapter", options_.dilation);
  lora_ = draw_convolution_lora(*this, options_, options);
  take_in_lora(lora_.a, lora_.b, weight.device());
}

}  // namespace lerobot::nn
