#include "lerobot/base/file_lock.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

namespace lerobot {

std::optional<FileLock> FileLock::acquire(const fs::path& path,
                                          std::chrono::duration<double> timeout,
                                          const std::function<void()>& waiting) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kStep(100);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd.get() < 0) fail_system(errno, "{}: cannot create the lock file", path.string());
  const Clock::time_point begin = Clock::now();
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) fail_system(errno, "{}: cannot lock", path.string());
    const std::chrono::duration<double> left = timeout - (Clock::now() - begin);
    if (left.count() <= 0.0) return std::nullopt;
    if (waiting) waiting();
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, kStep));
  }
  return FileLock(std::move(fd));
}

UseLock::UseLock(const fs::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_.get() < 0) fail_system(errno, "{}: cannot open", path.string());
  while (::flock(fd_.get(), LOCK_SH | LOCK_NB) != 0 && errno == EINTR) {
  }
}

bool UseLock::remove_unused(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  return ::unlink(path.c_str()) == 0;
}

}  // namespace lerobot
