#include "lerobot/streaming/local_payload.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lerobot/base/error.h"

namespace lerobot::streaming {
namespace {

/// Files kept open. Far below the usual limit of 1,024 descriptors.
constexpr std::size_t kOpenFiles = 256;

/// A cancelled read returns after at most this many bytes.
constexpr std::size_t kBytesPerRead = std::size_t{8} << 20;

std::int64_t nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

LocalPayload::LocalPayload(std::filesystem::path root)
    : root_(std::move(root)), open_files_(kOpenFiles) {}

std::string LocalPayload::describe(std::string_view path) const { return (root_ / path).string(); }

std::uint64_t LocalPayload::size(const std::string& path) { return open(path)->size; }

std::optional<std::string> LocalPayload::fingerprint(const std::string& path) {
  const auto file = open(path);
  return fmt::format("{}:{}", file->modified_ns, file->changed_ns);
}

std::shared_ptr<const LocalPayload::OpenFile> LocalPayload::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto* found = open_files_.find(path)) return *found;
  const std::string name = describe(path);
  auto file = std::make_shared<OpenFile>();
  file->fd = UniqueFd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file->fd.get() < 0 || ::fstat(file->fd.get(), &status) != 0) {
    if (errno == ENOENT) fail("{}: is missing; fetch the dataset's files again", name);
    fail("{}: cannot be opened: {}", name, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) fail("{}: is not a file", name);
  file->size = static_cast<std::uint64_t>(status.st_size);
  file->modified_ns = nanoseconds(status.st_mtim);
  file->changed_ns = nanoseconds(status.st_ctim);
  open_files_.insert(path, file);
  return file;
}

void LocalPayload::read(std::span<const ByteRange> ranges) {
  for (const ByteRange& range : ranges) read(range);
}

void LocalPayload::read(const ByteRange& range) {
  const auto file = open(range.path);
  const auto refuse = [&](std::string_view reason) {
    fail("{}: bytes {} to {} cannot be read: {}", describe(range.path), range.offset,
         range.offset + range.out.size(), reason);
  };
  if (range.offset > file->size || range.out.size() > file->size - range.offset)
    refuse(fmt::format("the file ends after {}", file->size));
  std::size_t done = 0;
  while (done < range.out.size()) {
    if (cancelled_) fail("reading {} was stopped", describe(range.path));
    const std::size_t wanted = std::min(range.out.size() - done, kBytesPerRead);
    const ssize_t got = ::pread(file->fd.get(), range.out.data() + done, wanted,
                                static_cast<off_t>(range.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(std::strerror(errno));
    if (got == 0) {
      struct stat status {};
      ::fstat(file->fd.get(), &status);
      refuse(fmt::format("the file was cut to {} bytes during the run", status.st_size));
    }
    done += static_cast<std::size_t>(got);
  }
  // Rewritten in place: what was read may be a mixture of old and new.
  struct stat status {};
  if (::fstat(file->fd.get(), &status) == 0 && nanoseconds(status.st_mtim) != file->modified_ns)
    refuse("the file changed during the run; leave the dataset alone while it is read");
  bytes_read_ += range.out.size();
}

}  // namespace lerobot::streaming
