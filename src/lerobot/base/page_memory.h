// Memory that goes back to the system when it is freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lerobot {

/// A private mapping of whole pages, zero at first. For large blocks that come and go: an allocator
/// may keep what is freed, and a vector writes zeros before it is filled.
class PageMemory {
 public:
  PageMemory() = default;
  /// Throws Error when the system has no such memory.
  explicit PageMemory(std::size_t bytes);
  PageMemory(PageMemory&& other) noexcept;
  PageMemory& operator=(PageMemory&& other) noexcept;
  ~PageMemory();

  std::span<std::uint8_t> bytes() { return {data_, size_}; }
  std::span<const std::uint8_t> bytes() const { return {data_, size_}; }
  std::size_t size() const { return size_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lerobot
