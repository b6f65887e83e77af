// Memory for what sharded training gathers and reduces, used again as soon as it is free.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lerobot::distributed {

/// Blocks of bytes on one device. On the CPU they go round: touching fresh pages for every unit of
/// every pass would cost more than the copies. There are never more of them than were in use at
/// once. On a GPU torch's caching allocator does the same. Used from one thread at a time.
class BlockPool {
 public:
  explicit BlockPool(at::Device device) : device_(device) {}

  at::Device device() const { return device_; }
  /// At least `bytes` bytes, uninitialised, aligned to 64.
  at::Tensor take(std::int64_t bytes);
  /// Hands a block back; nothing may use it any more.
  void give(at::Tensor block);

 private:
  at::Device device_;
  std::vector<at::Tensor> free_;
};

}  // namespace lerobot::distributed
