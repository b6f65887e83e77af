// Initial values, drawn from torch's global CPU generator with the arithmetic of torch.nn.init, so
// that the same seed gives the same bits as in Python. All work in place, without gradients.
#pragma once

#include <ATen/core/Tensor.h>

namespace lerobot::nn::init {

/// Fan in of a weight (out, in, kernel...): in * kernel.
std::int64_t fan_in(const at::Tensor& weight);

/// kaiming_uniform_(weight, a=sqrt(5)): what Linear and Conv2d start from.
void default_weight(at::Tensor weight);
/// U(-1/sqrt(fan_in), 1/sqrt(fan_in)): the bias beside default_weight().
void default_bias(at::Tensor bias, std::int64_t fan_in);
/// kaiming_normal_(weight, mode="fan_out", nonlinearity="relu").
void kaiming_normal_fan_out_relu(at::Tensor weight);
/// xavier_uniform_(weight): of a matrix (fan out, fan in).
void xavier_uniform(at::Tensor weight);
/// normal_(mean, std).
void normal(at::Tensor weight, double mean, double std);
void constant(at::Tensor weight, double value);

}  // namespace lerobot::nn::init
