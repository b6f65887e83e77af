#include "lerobot/distributed/launch/signal_reader.h"

#include <cerrno>
#include <sys/signalfd.h>
#include <unistd.h>

#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalReader::SignalReader() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, no child could be waited for
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2})
    if (!is_ignored(signal)) ::sigaddset(&signals, signal);
  if (::sigprocmask(SIG_BLOCK, &signals, &before_) != 0)
    fail_system(errno, "signals cannot be blocked");
  fd_ = UniqueFd(::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (fd_.get() < 0) fail_system(errno, "signals cannot be read");
}

SignalReader::~SignalReader() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> SignalReader::next() {
  signalfd_siginfo info{};
  ssize_t n = 0;
  do n = ::read(fd_.get(), &info, sizeof info);
  while (n < 0 && errno == EINTR);
  if (n != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool asks_for_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

const char* signal_name(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    case SIGQUIT:
      return "SIGQUIT";
    default:
      return "a signal";
  }
}

}  // namespace lerobot::distributed
