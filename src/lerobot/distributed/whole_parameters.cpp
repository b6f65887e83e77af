#include "lerobot/distributed/whole_parameters.h"

#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

namespace lerobot::distributed {

WholeParameters::WholeParameters(std::vector<UnitParameter> parameters, const Communicator& all)
    : parameters_(std::move(parameters)), all_(all) {
  for (const UnitParameter& parameter : parameters_)
    if (parameter.tensor.requires_grad()) trainable_.push_back(parameter.tensor);
}

void WholeParameters::average_gradients() {
  if (trainable_.empty()) return;
  const c10::NoGradGuard no_grad;
  const auto count = static_cast<std::int64_t>(trainable_.size());
  std::int64_t elements = 0;
  for (const at::Tensor& parameter : trainable_) elements += parameter.numel();
  // Behind the gradients travels, for each parameter, whether this rank had one.
  const at::Tensor flat =
      at::zeros({elements + count}, at::TensorOptions(at::kFloat).device(trainable_[0].device()));
  std::int64_t offset = 0, number = 0;
  for (const at::Tensor& parameter : trainable_) {
    if (parameter.grad().defined()) {
      flat.narrow(0, offset, parameter.numel()).copy_(parameter.grad().reshape({-1}));
      flat.narrow(0, elements + number, 1).fill_(1.0);
    }
    offset += parameter.numel();
    ++number;
  }
  all_.all_reduce(flat, Reduction::kAverage).wait();
  const at::Tensor flags = flat.narrow(0, elements, count).cpu();
  offset = number = 0;
  for (at::Tensor& parameter : trainable_) {
    const std::int64_t size = parameter.numel();
    if (flags.const_data_ptr<float>()[number] > 0)
      parameter.mutable_grad() =
          flat.narrow(0, offset, size).view(parameter.sizes()).to(parameter.scalar_type());
    offset += size;
    ++number;
  }
}

}  // namespace lerobot::distributed
