#include "lerobot/distributed/launch/orphan_guard.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <set>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

/// One write of a pid_t is atomic. A positive number is a group to watch, a negative one a group to
/// forget.
void tell(int fd, pid_t number) {
  ssize_t n = 0;
  do n = ::write(fd, &number, sizeof number);
  while (n < 0 && errno == EINTR);
}

constexpr int kGuardPipe = 3;

/// Keeps only the pipe open, as number 3: a descriptor of the launcher's that stays open here would
/// keep its readers waiting.
void leave_everything(int pipe) {
  ::setsid();
  ::prctl(PR_SET_NAME, "launch-guard");
  ::dup2(pipe, kGuardPipe);
  const int null = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard < kGuardPipe; ++standard) ::dup2(null, standard);
  if (::close_range(kGuardPipe + 1, ~0U, 0) != 0)  // before Linux 5.9
    for (int fd = kGuardPipe + 1; fd < 4096; ++fd) ::close(fd);
  // A working folder that stays in use can't be unmounted.
  if (::chdir("/") != 0) return;
}

[[noreturn]] void guard(int pipe) {
  leave_everything(pipe);
  std::set<pid_t> groups;
  pid_t number = 0;
  while (true) {
    const ssize_t n = ::read(kGuardPipe, &number, sizeof number);
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof number) break;
    if (number > 0)
      groups.insert(number);
    else
      groups.erase(-number);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

}  // namespace

OrphanGuard::OrphanGuard() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_system(errno, "a pipe cannot be made");
  const UniqueFd read_end(ends[0]);
  pipe_ = UniqueFd(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) fail_system(errno, "the launcher's guard cannot be started");
  if (pid_ == 0) {
    pipe_ = UniqueFd();  // or the guard would never see the launcher's end
    guard(read_end.get());
  }
}

OrphanGuard::~OrphanGuard() {
  pipe_ = UniqueFd();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void OrphanGuard::watch_own_group() const { tell(pipe_.get(), ::getpid()); }

void OrphanGuard::forget(pid_t group) const { tell(pipe_.get(), -group); }

}  // namespace lerobot::distributed
