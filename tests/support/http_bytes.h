// The bytes of a body: in memory, in files, or pieces of both one after the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/files.h"

namespace lerobot::test_server {

/// A value: copies share what they name, which doesn't change. Files are opened when their bytes
/// are wanted, so that thousands of them cost no descriptors.
class Bytes {
 public:
  /// A file on disk; a temporary one goes with the last value that names it.
  struct File {
    std::filesystem::path path;
    bool temporary = false;

    File(std::filesystem::path path, bool temporary);
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File();
  };
  struct Piece {
    std::shared_ptr<const std::string> memory;  ///< or
    std::shared_ptr<const File> file;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  Bytes() = default;
  Bytes(std::string text);
  Bytes(const char* text) : Bytes(std::string(text)) {}
  /// Throws Error when the file's size can't be told.
  static Bytes of_file(const std::filesystem::path& path);
  static Bytes of_file(std::shared_ptr<const File> file);

  std::uint64_t size() const { return size_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  void append(const Bytes& more);
  /// Bytes [offset, offset + size), which must lie within.
  Bytes part(std::uint64_t offset, std::uint64_t size) const;

  /// All of them at once. Throws Error when a file can't be read or has become shorter.
  std::string text() const;
  /// The same in blocks of at most 1 MiB.
  void for_each_block(const std::function<void(std::string_view)>& take) const;

 private:
  std::vector<Piece> pieces_;
  std::uint64_t size_ = 0;
};

/// Opens the files of pieces that are visited in order, each once as long as they don't alternate.
class PieceFiles {
 public:
  /// Throws Error when it can't be opened.
  int descriptor(const Bytes::Piece& piece);

 private:
  std::shared_ptr<const Bytes::File> file_;
  UniqueFd fd_;
};

}  // namespace lerobot::test_server
