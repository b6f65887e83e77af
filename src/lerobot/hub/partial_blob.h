// A large blob while it is fetched: which of its blocks are in its incomplete file, and the hash of
// what is there from the start.
//
// Blocks may be written in any order and by several threads. Each one that is there is marked
// behind the content, in the same file:
//
//   bytes [0, size)      content
//   16 bytes             "lerobot blocks 1"
//   1 byte a block       1: the block is there
//
// so that whatever ends this process, another one knows what to fetch. Python's client writes from
// start to end instead: of a file of that form, the whole blocks it holds are taken. Either way the
// hash over all of it decides in the end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lerobot/base/digest.h"
#include "lerobot/base/files.h"
#include "lerobot/hub/repo_cache.h"

namespace lerobot::hub {

/// Hashes content as `file`'s ETag was made: SHA-256 of a large file, git's SHA-1 of another.
Digest digest_for(const RepoFile& file);

class PartialBlob {
 public:
  static constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;

  struct Range {
    std::uint64_t first = 0;
    std::uint64_t end = 0;  ///< exclusive
  };

  /// With an exclusive lock the best file that was left over is continued, and others are removed;
  /// else a new one is begun. The lock is held until the last write is through. Throws SystemError
  /// when the cache can't be written.
  PartialBlob(const RepoCache& cache, const RepoFile& file, BlobLock lock);
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;
  /// Leaves the file when it holds something that may be continued.
  ~PartialBlob();

  /// What is to be fetched, in order, in ranges of at most `longest` bytes that begin at multiples
  /// of it or of a block.
  std::vector<Range> missing(std::uint64_t longest) const;
  std::uint64_t missing_bytes() const;

  /// Says that write() will be called once more; thread-safe, as is all below.
  void expect_write();
  /// A whole block (the last one may be shorter) that begins at `offset`. Never throws: see
  /// failed() and complete(). Hashes it, too, when all before it is hashed.
  void write(std::uint64_t offset, std::span<const std::uint8_t> bytes) noexcept;
  /// One of the expected writes isn't going to be made.
  void forget_write();
  bool failed() const;
  /// Throws the first failure, if there is one.
  void check() const;

  /// Waits for the expected writes, then returns the digest of the whole content. Throws the first
  /// failure.
  std::string hash();
  /// The content gets its name.
  void rename_to(const std::filesystem::path& blob);
  /// The destructor is to remove the file: its content is wrong.
  void condemn() { keep_ = false; }

 private:
  bool adopt(const std::filesystem::path& path);
  void create(const RepoCache& cache);
  void take_marks(std::uint64_t found_size);
  std::uint64_t block_size(std::size_t block) const;
  void hash_ahead(std::unique_lock<std::mutex>& lock, std::size_t block,
                  std::span<const std::uint8_t> bytes);
  void fail_with(std::exception_ptr failure);

  const BlobLock lock_;
  const std::string etag_;
  const std::uint64_t size_;
  std::filesystem::path path_;
  UniqueFd fd_;
  bool keep_ = true;
  bool renamed_ = false;

  mutable std::mutex mutex_;
  std::condition_variable quiet_;
  std::vector<bool> present_;
  Digest digest_;
  std::size_t hashed_ = 0;  ///< blocks
  bool hashing_ = false;
  std::size_t expected_ = 0;
  std::exception_ptr failure_;
};

}  // namespace lerobot::hub
