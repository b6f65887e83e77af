#include "lerobot/nn/layers.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "lerobot/nn/init.h"

namespace lerobot::nn {

Linear::Linear(std::int64_t in, std::int64_t out, std::string class_name)
    : Callable(std::move(class_name)) {
  weight = register_parameter("weight", at::empty({out, in}));
  init::default_weight(weight);
  bias = register_parameter("bias", at::empty({out}));
  init::default_bias(bias, in);
}

at::Tensor Linear::forward(const at::Tensor& x) const { return at::linear(x, weight, bias); }

LayerNorm::LayerNorm(std::int64_t size) : Callable("LayerNorm") {
  weight = register_parameter("weight", at::ones({size}));
  bias = register_parameter("bias", at::zeros({size}));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  constexpr double kEps = 1e-5;
  return at::layer_norm(x, weight.sizes(), weight, bias, kEps);
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
  return at::conv2d(x, weight, bias, options_.stride, options_.padding, options_.dilation);
}

}  // namespace lerobot::nn
