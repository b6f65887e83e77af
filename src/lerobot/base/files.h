// Files: whole reads, read-only mappings, and writes that are there or are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace lerobot {

namespace fs = std::filesystem;

/// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  int release();

 private:
  int fd_ = -1;
};

/// A file mapped read-only. Thread-safe. The bytes stay valid while the object lives; a file that
/// somebody truncates meanwhile raises SIGBUS on access, so map only files that are complete.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error naming `path` when it can't be opened, is not a regular file, or can't be mapped.
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return {data_, size_}; }
  std::size_t size() const { return size_; }

 private:
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The whole content of a file. Throws Error naming `path`.
std::string read_text_file(const fs::path& path);

/// A file being written. Every failure, short write and full disk included, throws Error naming the
/// file. commit() flushes to the device; without it the destructor removes the file.
class FileWriter {
 public:
  explicit FileWriter(fs::path path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  void write(std::span<const std::uint8_t> bytes);
  void write(std::string_view text);
  std::uint64_t written() const { return written_; }
  void commit();

 private:
  void flush_buffer();

  fs::path path_;
  UniqueFd fd_;
  std::string buffer_;
  std::uint64_t written_ = 0;
  bool committed_ = false;
};

/// Replaces `path` by `text` as a unit: written beside it, flushed, renamed over it.
void write_file_atomic(const fs::path& path, std::string_view text);

/// Makes a directory and those above it that are missing. Throws SystemError naming `directory`.
void make_directories(const fs::path& directory);

/// Flushes a directory's entries to the device, so that a rename in it survives a power cut.
void sync_directory(const fs::path& directory);

/// True when the file is a Git LFS pointer, that is a clone without its large files.
bool is_git_lfs_pointer(const fs::path& path);

}  // namespace lerobot
