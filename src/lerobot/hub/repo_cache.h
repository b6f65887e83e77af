// A repository's part of the cache on disk, which Python's huggingface_hub shares.
//
//   CACHE/CACHEDIR.TAG
//   CACHE/.locks/datasets--OWNER--NAME/ETAG.lock
//   CACHE/datasets--OWNER--NAME/refs/REVISION             the commit, without a line break
//                               blobs/ETAG                the content; ETAG.HEX.incomplete
//                               meanwhile snapshots/COMMIT/PATH     a relative link to the blob, or
//                               a file trees/COMMIT.json         the listing of a commit
//
// A blob may itself be a link into CACHE/blobs, which the Xet downloads of several repositories
// share: links are followed on reading, and a name of a blob is only ever replaced, never written
// through.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/file_lock.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/repo_info.h"

namespace lerobot::hub {

/// Held while one blob is fetched.
class BlobLock {
 public:
  explicit BlobLock(std::optional<FileLock> lock) : lock_(std::move(lock)) {}
  /// False where the file system knows no locks: somebody else may be fetching the same blob.
  bool exclusive() const { return lock_.has_value(); }

 private:
  std::optional<FileLock> lock_;
};

/// Thread-safe. Paths, commits and ETags are checked: none may leave its folder (Error).
class RepoCache {
 public:
  RepoCache(std::filesystem::path cache, Repo repo, bool symlinks = true);

  const Repo& repo() const { return repo_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path snapshot(std::string_view commit) const;

  /// What `revision` was when it was asked for last (a full commit is itself); nullopt when it
  /// never was, or the file is damaged.
  std::optional<std::string> commit_of(std::string_view revision) const;
  /// Best effort: a read-only cache still serves. Nothing is written for a full commit.
  void remember(std::string_view revision, std::string_view commit) const;

  /// The file of a snapshot, when it is there with its content (a link to a blob that is missing is
  /// not).
  std::optional<std::filesystem::path> find(std::string_view commit, std::string_view path) const;
  /// The same, and of the right size: after a power cut a file may be there without its bytes.
  std::optional<std::filesystem::path> find(std::string_view commit, const RepoFile& file) const;

  /// nullopt when there is none, or it is damaged or of a format that is not known.
  std::optional<std::vector<RepoFile>> listing(std::string_view commit) const;
  /// Best effort.
  void remember_listing(std::string_view commit, const std::vector<RepoFile>& files) const;

  /// Waits up to `timeout`; `waiting` is called meanwhile, every tenth of a second, and may throw.
  /// nullopt: another process has the lock. Throws SystemError when the cache can't be written.
  std::optional<BlobLock> lock_blob(std::string_view etag, std::chrono::duration<double> timeout,
                                    const std::function<void()>& waiting = {}) const;
  std::filesystem::path blob(std::string_view etag) const;
  /// True for a blob that is there with that many bytes.
  bool has_blob(std::string_view etag, std::uint64_t size) const;
  /// A new name for the blob while it is incomplete, in a folder that is there.
  std::filesystem::path incomplete_blob(std::string_view etag) const;
  /// Files of such names. Who has the exclusive lock may continue or remove them.
  std::vector<std::filesystem::path> leftovers(std::string_view etag) const;
  /// Makes the snapshot's files of a complete blob, in place of what may be there. Without
  /// symbolic links they are copies, and a blob that isn't `kept` becomes the last of them.
  void place(std::string_view commit, const std::vector<std::string>& paths, std::string_view etag,
             bool kept) const;

 private:
  /// False when this file system can't.
  bool place_link(const std::filesystem::path& file, const std::filesystem::path& blob) const;

  const std::filesystem::path cache_;
  const Repo repo_;
  const std::filesystem::path folder_;
  const bool symlinks_;
};

}  // namespace lerobot::hub
