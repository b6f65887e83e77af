#include "lerobot/dataset/image_store.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::dataset {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

[[noreturn]] void fail_temporary(const char* action) {
  fail(
      "{}: cannot {} a temporary file for the dataset's images: {}; set TMPDIR to a folder with "
      "room",
      fs::temp_directory_path().string(), action, system_error_text(errno));
}

/// A file without a name: it is gone with its descriptor, however the process ends.
UniqueFd unnamed_temporary_file() {
  std::string pattern = (fs::temp_directory_path() / "lerobot-images-XXXXXX").string();
  UniqueFd file(::mkostemp(pattern.data(), O_CLOEXEC));
  if (file.get() < 0) fail_temporary("create");
  ::unlink(pattern.c_str());
  return file;
}

}  // namespace

ImageStore::ImageStore(ImageStore&& other) noexcept { *this = std::move(other); }

ImageStore& ImageStore::operator=(ImageStore&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(buffer_, other.buffer_);
  std::swap(ends_, other.ends_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

ImageStore::~ImageStore() {
  if (mapping_) ::munmap(const_cast<std::uint8_t*>(mapping_), bytes_);
}

void ImageStore::append(std::span<const std::uint8_t> bytes) {
  if (file_.get() < 0) file_ = unnamed_temporary_file();
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  bytes_ += bytes.size();
  ends_.push_back(bytes_);
  if (buffer_.size() >= kBufferBytes) flush();
}

void ImageStore::flush() {
  const std::uint8_t* at = buffer_.data();
  std::size_t left = buffer_.size();
  while (left > 0) {
    const ssize_t written = ::write(file_.get(), at, left);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_temporary("write");
    }
    at += written;
    left -= static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void ImageStore::finish() {
  flush();
  buffer_.shrink_to_fit();
  if (bytes_ == 0) return;
  void* address = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file_.get(), 0);
  if (address == MAP_FAILED) fail_temporary("map");
  mapping_ = static_cast<const std::uint8_t*>(address);
  file_ = UniqueFd();
}

std::span<const std::uint8_t> ImageStore::operator[](std::int64_t image) const {
  const auto at = static_cast<std::size_t>(image);
  const std::uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return {mapping_ + begin, ends_[at] - begin};
}

}  // namespace lerobot::dataset
