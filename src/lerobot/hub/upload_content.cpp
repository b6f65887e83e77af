#include "lerobot/hub/upload_content.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/utf8.h"
#include "lerobot/hub/body_source.h"
#include "lerobot/hub/path_patterns.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

constexpr std::uint64_t kPiece = 8 << 20;
constexpr std::size_t kLongestPath = 500;
constexpr std::int64_t kNanosecondsOfSecond = 1'000'000'000;

void read_exactly(int fd, const std::filesystem::path& name, std::span<std::uint8_t> out,
                  std::uint64_t offset) {
  std::size_t got = 0;
  while (got < out.size()) {
    const ssize_t count =
        ::pread(fd, out.data() + got, out.size() - got, static_cast<off_t>(offset + got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system(errno, "{}: cannot be read", name.string());
    if (count == 0) fail("{}: became shorter while it was uploaded", name.string());
    got += static_cast<std::size_t>(count);
  }
}

}  // namespace

UploadContent::UploadContent(const UploadFile& file) : file_(&file) {
  if (const auto* text = std::get_if<std::string>(&file.content)) {
    size_ = text->size();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    modified_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    return;
  }
  local_ = &std::get<std::filesystem::path>(file.content);
  const State state = look();
  size_ = state.size;
  modified_ns_ = state.modified_ns;
}

std::int64_t UploadContent::modified_ms() const { return modified_ns_ / 1'000'000; }

UploadContent::State UploadContent::look() const {
  struct stat status {};
  if (::stat(local_->c_str(), &status) != 0)
    fail_system(errno, "{}: cannot be uploaded", local_->string());
  if (!S_ISREG(status.st_mode)) fail("{}: cannot be uploaded: it is no file", local_->string());
  return {static_cast<std::uint64_t>(status.st_size),
          status.st_mtim.tv_sec * kNanosecondsOfSecond + status.st_mtim.tv_nsec};
}

void UploadContent::read(std::uint64_t offset, std::uint64_t size,
                         const std::function<void(std::span<const std::uint8_t>)>& take) const {
  check_internal(offset <= size_ && size <= size_ - offset, "a range of the content");
  if (!local_) {
    const auto& text = std::get<std::string>(file_->content);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    for (std::uint64_t at = 0; at < size; at += kPiece)
      take({bytes + offset + at, std::min(kPiece, size - at)});
    return;
  }
  const UniqueFd fd(::open(local_->c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail_system(errno, "{}: cannot be opened", local_->string());
  std::vector<std::uint8_t> buffer(std::min(kPiece, size));
  for (std::uint64_t at = 0; at < size; at += kPiece) {
    const std::span piece = std::span(buffer).first(std::min(kPiece, size - at));
    read_exactly(fd.get(), *local_, piece, offset + at);
    take(piece);
  }
}

std::string UploadContent::read(std::uint64_t offset, std::uint64_t size) const {
  std::string out;
  out.reserve(size);
  read(offset, size, [&out](std::span<const std::uint8_t> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return out;
}

std::unique_ptr<BodySource> UploadContent::body(std::uint64_t offset, std::uint64_t size) const {
  if (local_) return std::make_unique<FileBody>(*local_, offset, size);
  return std::make_unique<TextBody>(read(offset, size));
}

void UploadContent::check_unchanged() const {
  if (!local_) return;
  const State now = look();
  if (now == State{size_, modified_ns_}) return;
  fail("{}: changed while it was uploaded ({} bytes, then {}); upload it when nothing writes to it",
       local_->string(), size_, now.size);
}

void check_upload_path(const std::string& path) {
  if (!is_repo_path(path) || !is_utf8(path))
    fail(
        "\"{}\" can't be the path of an uploaded file; expected one like folder/name in UTF-8, "
        "below the root and without control characters",
        printable_text(path, kLongestPath));
}

}  // namespace lerobot::hub
