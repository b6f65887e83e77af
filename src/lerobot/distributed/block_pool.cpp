#include "lerobot/distributed/block_pool.h"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace lerobot::distributed {

at::Tensor BlockPool::take(std::int64_t bytes) {
  const auto smaller = [](const at::Tensor& a, const at::Tensor& b) {
    return a.numel() < b.numel();
  };
  std::sort(free_.begin(), free_.end(), smaller);
  const auto fitting = std::find_if(
      free_.begin(), free_.end(), [&](const at::Tensor& block) { return block.numel() >= bytes; });
  if (fitting != free_.end()) {
    at::Tensor block = std::move(*fitting);
    free_.erase(fitting);
    return block;
  }
  // What is too small makes room, so that the number of blocks does not grow with their sizes.
  if (!free_.empty()) free_.pop_back();
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
}

void BlockPool::give(at::Tensor block) {
  if (device_.is_cpu()) free_.push_back(std::move(block));
}

}  // namespace lerobot::distributed
