// Parameters of normalisation layers under mixed precision.
#pragma once

#include <ATen/core/Tensor.h>

namespace lerobot::nn {

/// A parameter as a kernel takes it beside `x`: torch's combine an input of low precision with
/// float32 parameters, but not the other way round, which sharded training comes to (its parameters
/// are of low precision, what promotes to float32 is not).
inline at::Tensor parameter_for(const at::Tensor& x, const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kFloat ? parameter : parameter.to(x.scalar_type());
}

}  // namespace lerobot::nn
