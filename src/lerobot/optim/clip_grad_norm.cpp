#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "lerobot/optim/optimizer.h"

namespace lerobot::optim {

namespace {

std::vector<at::Tensor> gradients_of(const nn::NamedTensors& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad().detach());
  return gradients;
}

}  // namespace

at::Tensor grad_norm(const nn::NamedTensors& parameters) {
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return at::zeros({}, at::kFloat);
  std::vector<at::Tensor> norms = at::_foreach_norm(gradients, 2.0);
  for (at::Tensor& norm : norms) norm = norm.to(norms.front().device());
  return at::linalg_vector_norm(at::stack(norms), 2.0);
}

void clip_gradients(const nn::NamedTensors& parameters, const at::Tensor& norm, double max_norm) {
  if (!(max_norm > 0)) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor factor = at::clamp(norm.add(1e-6).reciprocal().mul(max_norm), {}, 1.0);
  // Multiplying by one changes nothing: on a CPU that pass over the memory can be saved, elsewhere
  // looking would wait for the device.
  if (factor.device().is_cpu() && factor.item<double>() == 1.0) return;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (!gradients.empty()) at::_foreach_mul_(gradients, factor);
}

at::Tensor clip_grad_norm(const nn::NamedTensors& parameters, double max_norm) {
  const at::Tensor norm = grad_norm(parameters);
  clip_gradients(parameters, norm, max_norm);
  return norm;
}

}  // namespace lerobot::optim
