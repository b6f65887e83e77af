#include "lerobot/hub/body_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "lerobot/base/error.h"

namespace lerobot::hub {

std::size_t TextBody::read(std::span<std::uint8_t> out) {
  const std::size_t count = std::min(out.size(), text_.size() - position_);
  std::memcpy(out.data(), text_.data() + position_, count);
  position_ += count;
  return count;
}

FileBody::FileBody(std::filesystem::path path, std::uint64_t offset, std::uint64_t size)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)),
      offset_(offset),
      size_(size) {
  if (fd_.get() < 0) fail_system(errno, "{}: cannot be opened", path_.string());
}

std::size_t FileBody::read(std::span<std::uint8_t> out) {
  const std::size_t wanted = std::min<std::uint64_t>(out.size(), size_ - position_);
  std::size_t got = 0;
  while (got < wanted) {
    const ssize_t count = ::pread(fd_.get(), out.data() + got, wanted - got,
                                  static_cast<off_t>(offset_ + position_ + got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system(errno, "{}: cannot be read", path_.string());
    if (count == 0) fail("{}: became shorter while it was uploaded", path_.string());
    got += static_cast<std::size_t>(count);
  }
  position_ += got;
  return got;
}

}  // namespace lerobot::hub
