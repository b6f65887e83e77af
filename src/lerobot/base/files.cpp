#include "lerobot/base/files.h"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot {
namespace {

constexpr std::size_t kWriteBufferBytes = 1 << 20;

void write_all(int fd, const fs::path& path, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_system(errno, "{}: cannot write", path.string());
    }
    data += n;
    size -= static_cast<std::size_t>(n);
  }
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

int UniqueFd::release() { return std::exchange(fd_, -1); }

MappedFile::MappedFile(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail_system(errno, "{}: cannot open", path.string());
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    fail_system(errno, "{}: cannot read its size", path.string());
  if (!S_ISREG(status.st_mode)) fail("{}: is not a regular file", path.string());
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) fail_system(errno, "{}: cannot map", path.string());
  data_ = static_cast<const std::uint8_t*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::uint8_t*>(data_), size_);
}

std::string read_text_file(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) fail("{}: is a directory, expected a file", path.string());
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail_system(errno, "{}: cannot open", path.string());
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (stream.bad()) fail_system(errno, "{}: cannot read", path.string());
  return text;
}

FileWriter::FileWriter(fs::path path)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (fd_.get() < 0) fail_system(errno, "{}: cannot create", path_.string());
}

FileWriter::~FileWriter() {
  if (!committed_ && fd_.get() >= 0) ::unlink(path_.c_str());
}

void FileWriter::write(std::span<const std::uint8_t> bytes) {
  const char* data = reinterpret_cast<const char*>(bytes.data());
  written_ += bytes.size();
  if (buffer_.size() + bytes.size() <= kWriteBufferBytes) {
    buffer_.append(data, bytes.size());
    return;
  }
  flush_buffer();
  if (bytes.size() >= kWriteBufferBytes) {
    write_all(fd_.get(), path_, data, bytes.size());
  } else {
    buffer_.assign(data, bytes.size());
  }
}

void FileWriter::write(std::string_view text) {
  write(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

void FileWriter::flush_buffer() {
  write_all(fd_.get(), path_, buffer_.data(), buffer_.size());
  buffer_.clear();
}

void FileWriter::commit() {
  flush_buffer();
  if (::fsync(fd_.get()) != 0) fail_system(errno, "{}: cannot flush to disk", path_.string());
  if (::close(fd_.release()) != 0) fail_system(errno, "{}: cannot close", path_.string());
  committed_ = true;
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  fs::path temporary = path;
  temporary += fmt::format(".tmp.{}", ::getpid());
  {
    FileWriter writer(temporary);
    writer.write(text);
    writer.commit();
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) {
    const int number = error.value();
    fs::remove(temporary, error);
    fail_system(number, "{}: cannot be replaced", path.string());
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void make_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_system(error.value(), "{}: cannot create the directory", directory.string());
}

void sync_directory(const fs::path& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems refuse to sync a directory; the rename itself has succeeded there.
  if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP))
    fail_system(errno, "{}: cannot flush the directory", directory.string());
}

bool is_git_lfs_pointer(const fs::path& path) {
  constexpr std::string_view kMagic = "version https://git-lfs.github.com/spec/";
  std::ifstream stream(path, std::ios::binary);
  std::string head(kMagic.size(), '\0');
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  return stream && head == kMagic;
}

}  // namespace lerobot
