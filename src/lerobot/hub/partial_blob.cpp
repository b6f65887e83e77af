#include "lerobot/hub/partial_blob.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "lerobot blocks 1";
constexpr std::uint8_t kThere = 1;

std::size_t blocks_of(std::uint64_t size) {
  return static_cast<std::size_t>((size + PartialBlob::kBlock - 1) / PartialBlob::kBlock);
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

void write_at(int fd, const fs::path& path, std::uint64_t offset,
              std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system(errno, "{}: cannot write", path.string());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

/// Empty when that many can't be read.
std::vector<std::uint8_t> read_at(int fd, std::uint64_t offset, std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  const ssize_t count = ::pread(fd, bytes.data(), size, static_cast<off_t>(offset));
  if (count != static_cast<ssize_t>(size)) bytes.clear();
  return bytes;
}

std::uint64_t size_of(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return static_cast<std::uint64_t>(status.st_blocks) * 512;  // what is really there
}

}  // namespace

Digest digest_for(const RepoFile& file) {
  return file.lfs_sha256 ? Digest(Digest::Algorithm::kSha256) : git_blob_digest(file.size);
}

PartialBlob::PartialBlob(const RepoCache& cache, const RepoFile& file, BlobLock lock)
    : lock_(std::move(lock)),
      etag_(file.etag()),
      size_(file.size),
      present_(blocks_of(file.size), false),
      digest_(digest_for(file)) {
  std::vector<fs::path> found;
  if (lock_.exclusive()) found = cache.leftovers(etag_);
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return size_of(a) > size_of(b); });
  for (const fs::path& path : found)
    if (fd_.get() >= 0 || !adopt(path)) ::unlink(path.c_str());
  if (fd_.get() < 0) create(cache);
}

PartialBlob::~PartialBlob() {
  if (renamed_) return;
  const bool empty = std::find(present_.begin(), present_.end(), true) == present_.end();
  if (!keep_ || empty) ::unlink(path_.c_str());
}

bool PartialBlob::adopt(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  fd_ = std::move(fd);
  path_ = path;
  take_marks(static_cast<std::uint64_t>(status.st_size));
  if (std::find(present_.begin(), present_.end(), true) != present_.end()) return true;
  fd_ = UniqueFd();
  return false;
}

void PartialBlob::take_marks(std::uint64_t found_size) {
  const std::size_t blocks = present_.size();
  if (found_size <= size_) {  // written from start to end
    const auto whole = static_cast<std::size_t>(found_size / kBlock);
    std::fill_n(present_.begin(), whole, true);
    std::vector<std::uint8_t> marks(blocks, 0);
    std::fill_n(marks.begin(), whole, kThere);
    // The marks first: without its last line the file is again one that was written in order.
    write_at(fd_.get(), path_, size_ + kMagic.size(), marks);
    write_at(fd_.get(), path_, size_, bytes_of(kMagic));
    return;
  }
  if (found_size != size_ + kMagic.size() + blocks) return;
  const auto magic = read_at(fd_.get(), size_, kMagic.size());
  if (!std::equal(magic.begin(), magic.end(), bytes_of(kMagic).begin(), bytes_of(kMagic).end()))
    return;
  const auto marks = read_at(fd_.get(), size_ + kMagic.size(), blocks);
  for (std::size_t i = 0; i < marks.size(); ++i) present_[i] = marks[i] == kThere;
}

void PartialBlob::create(const RepoCache& cache) {
  path_ = cache.incomplete_blob(etag_);
  fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (fd_.get() < 0) fail_system(errno, "{}: cannot create", path_.string());
  const std::vector<std::uint8_t> marks(present_.size(), 0);
  try {
    write_at(fd_.get(), path_, size_ + kMagic.size(), marks);
    write_at(fd_.get(), path_, size_, bytes_of(kMagic));
  } catch (const SystemError&) {
    ::unlink(path_.c_str());
    throw;
  }
}

std::uint64_t PartialBlob::block_size(std::size_t block) const {
  return std::min(kBlock, size_ - block * kBlock);
}

std::vector<PartialBlob::Range> PartialBlob::missing(std::uint64_t longest) const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  for (std::size_t block = 0; block < present_.size(); ++block) {
    if (present_[block]) continue;
    const std::uint64_t first = block * kBlock;
    const bool goes_on = !ranges.empty() && ranges.back().end == first && first % longest != 0;
    if (!goes_on) ranges.push_back({first, first});
    ranges.back().end = first + block_size(block);
  }
  return ranges;
}

std::uint64_t PartialBlob::missing_bytes() const {
  std::uint64_t bytes = 0;
  for (const Range& range : missing(size_)) bytes += range.end - range.first;
  return bytes;
}

void PartialBlob::expect_write() {
  const std::lock_guard lock(mutex_);
  ++expected_;
}

void PartialBlob::write(std::uint64_t offset, std::span<const std::uint8_t> bytes) noexcept {
  const auto block = static_cast<std::size_t>(offset / kBlock);
  try {
    write_at(fd_.get(), path_, offset, bytes);
    write_at(fd_.get(), path_, size_ + kMagic.size() + block, {&kThere, 1});
    std::unique_lock lock(mutex_);
    present_[block] = true;
    hash_ahead(lock, block, bytes);
  } catch (...) {
    fail_with(std::current_exception());
  }
  forget_write();
}

void PartialBlob::forget_write() {
  const std::lock_guard lock(mutex_);
  --expected_;
  quiet_.notify_all();
}

/// Takes the hash as far as it goes: `block` from memory, others, which came before their turn,
/// from the file. One thread does it at a time; blocks that others write meanwhile are within its
/// loop.
void PartialBlob::hash_ahead(std::unique_lock<std::mutex>& lock, std::size_t block,
                             std::span<const std::uint8_t> bytes) {
  if (hashing_) return;
  hashing_ = true;
  try {
    while (!failure_ && hashed_ < present_.size() && present_[hashed_]) {
      const std::size_t next = hashed_;
      lock.unlock();
      if (next == block && !bytes.empty())
        digest_.update(bytes);
      else
        update_from_file(digest_, fd_.get(), path_, next * kBlock, block_size(next));
      lock.lock();
      ++hashed_;
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    if (!failure_) failure_ = std::current_exception();
  }
  hashing_ = false;
  quiet_.notify_all();
}

void PartialBlob::fail_with(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
}

bool PartialBlob::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void PartialBlob::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

std::string PartialBlob::hash() {
  std::unique_lock lock(mutex_);
  quiet_.wait(lock, [this] { return expected_ == 0 && !hashing_; });
  hash_ahead(lock, present_.size(), {});
  if (failure_) std::rethrow_exception(failure_);
  check_internal(hashed_ == present_.size(), "an incomplete blob was taken for complete");
  return digest_.hex_digest();
}

void PartialBlob::rename_to(const fs::path& blob) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0)
    fail_system(errno, "{}: cannot be cut to its content", path_.string());
  // Network file systems tell of a full disk only now.
  if (::close(fd_.release()) != 0) fail_system(errno, "{}: cannot write", path_.string());
  if (::rename(path_.c_str(), blob.c_str()) != 0)
    fail_system(errno, "{}: cannot be renamed to {}", path_.string(), blob.string());
  renamed_ = true;
}

}  // namespace lerobot::hub
