#include "lerobot/base/page_memory.h"

#include <cerrno>
#include <sys/mman.h>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot {

PageMemory::PageMemory(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* mapping =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) fail_system(errno, "{} bytes of memory cannot be had", bytes);
  data_ = static_cast<std::uint8_t*>(mapping);
}

PageMemory::PageMemory(PageMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PageMemory::~PageMemory() {
  if (data_) ::munmap(data_, size_);
}

}  // namespace lerobot
