#include "lerobot/nn/init.h"

#include <cmath>

#include <c10/core/GradMode.h>

namespace lerobot::nn::init {
namespace {

std::int64_t kernel_elements(const at::Tensor& weight) {
  std::int64_t elements = 1;
  for (std::int64_t d = 2; d < weight.dim(); ++d) elements *= weight.size(d);
  return elements;
}

std::int64_t fan_out(const at::Tensor& weight) { return weight.size(0) * kernel_elements(weight); }

void uniform(at::Tensor& weight, double bound) {
  c10::AutoGradMode no_grad(false);
  weight.uniform_(-bound, bound);
}

}  // namespace

std::int64_t fan_in(const at::Tensor& weight) { return weight.size(1) * kernel_elements(weight); }

void default_weight(at::Tensor weight) {
  // Step by step as torch.nn.init computes it: the bits of the bound matter.
  const double a = std::sqrt(5.0);
  const double gain = std::sqrt(2.0 / (1.0 + a * a));
  const double std = gain / std::sqrt(static_cast<double>(fan_in(weight)));
  uniform(weight, std::sqrt(3.0) * std);
}

void default_bias(at::Tensor bias, std::int64_t fan_in) {
  uniform(bias, 1.0 / std::sqrt(static_cast<double>(fan_in)));
}

void kaiming_normal_fan_out_relu(at::Tensor weight) {
  normal(weight, 0.0, std::sqrt(2.0) / std::sqrt(static_cast<double>(fan_out(weight))));
}

void xavier_uniform(at::Tensor weight) {
  const double std = 1.0 * std::sqrt(2.0 / static_cast<double>(fan_in(weight) + fan_out(weight)));
  uniform(weight, std::sqrt(3.0) * std);
}

void normal(at::Tensor weight, double mean, double std) {
  c10::AutoGradMode no_grad(false);
  weight.normal_(mean, std);
}

void constant(at::Tensor weight, double value) {
  c10::AutoGradMode no_grad(false);
  weight.fill_(value);
}

}  // namespace lerobot::nn::init
