// The arithmetic of a reduction whose parts lie in one process.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/distributed/communicator.h"

namespace lerobot::distributed {

/// `output` becomes the reduction of the parts, element by element, always in their order: the same
/// bits on every run. All are contiguous tensors of the CPU, of one size and dtype (floating point,
/// int64 or int32); bfloat16 and float16 are summed in float and rounded once. `output` may be one
/// of the parts.
void reduce_parts(const at::Tensor& output, const std::vector<at::Tensor>& parts,
                  Reduction reduction);

/// Divides a contiguous floating-point tensor of the CPU.
void divide(const at::Tensor& tensor, std::int64_t divisor);

}  // namespace lerobot::distributed
