// Dropout whose draws on the CPU are those of torch.nn.functional.dropout, so that a run from the
// same seed drops the same elements as LeRobot's.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lerobot::nn {

/// Which draws of the generator a tensor uses. A layer that computes only the first rows of what
/// LeRobot computes in full consumes the draws of all rows: the tensor's elements are divided into
/// `blocks` equal runs (in memory order), and each run takes the first of `draws_per_block` draws.
struct DropoutDraws {
  std::int64_t blocks = 1;
  std::int64_t draws_per_block = 0;  // 0: as many as the run has elements
};

/// x with each element zeroed with probability p, the others divided by 1 - p. x itself when p is
/// 0. On CPU the draws come from the global generator in memory order; on other devices torch's own
/// fused dropout draws (only what it needs).
at::Tensor dropout(const at::Tensor& x, double p, DropoutDraws draws = {});

/// residual + dropout(x, p), in one pass.
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, double p,
                       DropoutDraws draws = {});

/// dropout(relu(x), p), in the memory of x, which must not be needed any more.
at::Tensor relu_dropout(at::Tensor x, double p, DropoutDraws draws = {});

}  // namespace lerobot::nn
