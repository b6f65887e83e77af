// A lock that processes on one machine, and on most network file systems, share.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot {

/// flock(2) on a file of its own, which stays behind when the lock is released: removing it would
/// let two processes lock two files of one name. The kernel releases it when its holder ends,
/// however that happens, so a lock file without a holder is no obstacle.
class FileLock {
 public:
  /// Takes the lock, creating the file if needed; waits up to `timeout`, calling `waiting` every
  /// tenth of a second meanwhile (it may throw to give up). nullopt when the time is over. Throws
  /// SystemError when the file can't be created or locked.
  static std::optional<FileLock> acquire(const fs::path& path,
                                         std::chrono::duration<double> timeout,
                                         const std::function<void()>& waiting = {});

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

/// A shared lock on an existing file for as long as it is in use.
class UseLock {
 public:
  /// Throws SystemError when the file can't be opened. Where the file system knows no locks, the
  /// object is harmless.
  explicit UseLock(const fs::path& path);

  /// Removes the file unless some UseLock is held on it, or it can't be told. True when removed.
  static bool remove_unused(const fs::path& path);

 private:
  UniqueFd fd_;
};

}  // namespace lerobot
