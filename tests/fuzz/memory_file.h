// Bytes as a file that readers can open by its path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "lerobot/base/files.h"

namespace lerobot::fuzz {

class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : fd_(::memfd_create("fuzz", 0)) {
    if (fd_.get() < 0 || ::write(fd_.get(), data, size) != static_cast<ssize_t>(size))
      throw std::runtime_error("memfd");
  }
  std::filesystem::path path() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

 private:
  UniqueFd fd_;
};

}  // namespace lerobot::fuzz
