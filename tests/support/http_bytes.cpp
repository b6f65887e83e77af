#include "tests/support/http_bytes.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "lerobot/base/error.h"

namespace lerobot::test_server {
namespace {

constexpr std::uint64_t kBlock = 1 << 20;

}  // namespace

Bytes::File::File(std::filesystem::path where, bool is_temporary)
    : path(std::move(where)), temporary(is_temporary) {}

Bytes::File::~File() {
  std::error_code ignored;
  if (temporary) std::filesystem::remove(path, ignored);
}

Bytes::Bytes(std::string text) : size_(text.size()) {
  if (size_ > 0)
    pieces_.push_back({std::make_shared<const std::string>(std::move(text)), nullptr, 0, size_});
}

Bytes Bytes::of_file(const std::filesystem::path& path) {
  return of_file(std::make_shared<const File>(path, false));
}

Bytes Bytes::of_file(std::shared_ptr<const File> file) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(file->path, error);
  if (error) fail("{}: {}", file->path, error.message());
  Bytes bytes;
  bytes.size_ = size;
  if (size > 0) bytes.pieces_.push_back({nullptr, std::move(file), 0, size});
  return bytes;
}

void Bytes::append(const Bytes& more) {
  pieces_.insert(pieces_.end(), more.pieces_.begin(), more.pieces_.end());
  size_ += more.size_;
}

Bytes Bytes::part(std::uint64_t offset, std::uint64_t size) const {
  check_internal(offset <= size_ && size <= size_ - offset, "a part of bytes lies outside");
  Bytes wanted;
  for (const Piece& piece : pieces_) {
    if (wanted.size_ == size) break;
    if (offset >= piece.size) {
      offset -= piece.size;
      continue;
    }
    Piece cut = piece;
    cut.offset += offset;
    cut.size = std::min(piece.size - offset, size - wanted.size_);
    wanted.size_ += cut.size;
    wanted.pieces_.push_back(std::move(cut));
    offset = 0;
  }
  return wanted;
}

std::string Bytes::text() const {
  std::string text;
  text.reserve(size_);
  for_each_block([&](std::string_view block) { text += block; });
  return text;
}

void Bytes::for_each_block(const std::function<void(std::string_view)>& take) const {
  PieceFiles files;
  std::string block;
  for (const Piece& piece : pieces_) {
    if (piece.memory) {
      take(std::string_view(*piece.memory).substr(piece.offset, piece.size));
      continue;
    }
    const int fd = files.descriptor(piece);
    for (std::uint64_t at = 0; at < piece.size; at += block.size()) {
      block.resize(std::min(kBlock, piece.size - at));
      const ssize_t got =
          ::pread(fd, block.data(), block.size(), static_cast<off_t>(piece.offset + at));
      if (got < 0) fail_system(errno, "{}", piece.file->path);
      if (got == 0) fail("{}: has become shorter", piece.file->path);
      block.resize(static_cast<std::size_t>(got));
      take(block);
    }
  }
}

int PieceFiles::descriptor(const Bytes::Piece& piece) {
  if (piece.file != file_) {
    fd_ = UniqueFd(::open(piece.file->path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd_.get() < 0) fail_system(errno, "{}", piece.file->path);
    file_ = piece.file;
  }
  return fd_.get();
}

}  // namespace lerobot::test_server
