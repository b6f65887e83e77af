#include "lerobot/distributed/launch/worker_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_system(errno, "a pipe cannot be made");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// For execve(): pointers into `texts`, which must outlive them.
std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

struct ChildStart {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int input;
  int output;
  int error;
  int report;  // errno goes here when the program can't be started
  pid_t launcher;
};

/// Between fork and exec. Returns errno of what failed.
int become_worker(const ChildStart& start, const OrphanGuard& guard) {
  ::setpgid(0, 0);
  guard.watch_own_group();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.launcher) ::_exit(127);  // it died before the line above
  if (::dup2(start.input, STDIN_FILENO) < 0 || ::dup2(start.output, STDOUT_FILENO) < 0 ||
      ::dup2(start.error, STDERR_FILENO) < 0)
    return errno;
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(start.program, start.arguments, start.environment);
  return errno;
}

/// What the child reports: 0 once the program runs.
int reported_error(int fd) {
  int error = 0;
  ssize_t n = 0;
  do n = ::read(fd, &error, sizeof error);
  while (n < 0 && errno == EINTR);
  return n == sizeof error ? error : 0;
}

[[noreturn]] void fail_to_start(const std::string& program, int error) {
  if (error == ENOEXEC)
    fail("{}: neither a program of this machine nor a script that begins with #!", program);
  if (error == ENOENT)
    fail("{}: cannot be started: the interpreter in its first line (#!) or its loader is missing",
         program);
  fail_system(error, "{}: cannot be started", program);
}

}  // namespace

StartedWorker start_worker(const LaunchPlan& plan, const Environment& environment,
                           const OrphanGuard& guard) {
  const std::vector<std::string> lines = as_lines(environment);
  const std::vector<char*> environment_pointers = pointers(lines);
  const std::vector<char*> arguments = pointers(plan.arguments);
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.get() < 0) fail_system(errno, "/dev/null: cannot open");
  Pipe output = make_pipe();
  Pipe error = make_pipe();
  Pipe report = make_pipe();

  const ChildStart start{
      plan.program.c_str(),   arguments.data(),      environment_pointers.data(), null.get(),
      output.write_end.get(), error.write_end.get(), report.write_end.get(),      ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) fail_system(errno, "a process for {} cannot be started", plan.program);
  if (pid == 0) {
    const int error_number = become_worker(start, guard);
    // A failing write leaves the launcher with exit code 127, as shells have it.
    if (::write(start.report, &error_number, sizeof error_number) < 0) ::_exit(127);
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // whoever comes first: signals to the group reach it from here on
  report.write_end = UniqueFd();
  if (const int error_number = reported_error(report.read_end.get())) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
    guard.forget(pid);
    fail_to_start(plan.program, error_number);
  }
  for (const Pipe* pipe : {&output, &error}) ::fcntl(pipe->read_end.get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(output.read_end), std::move(error.read_end)};
}

std::string describe_end(int status) {
  if (WIFEXITED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* const name = ::sigabbrev_np(signal);
  return fmt::format("signal {}{}{}", name != nullptr ? "SIG" : "",
                     name != nullptr ? name : std::to_string(signal),
                     WCOREDUMP(status)   ? " (core dumped)"
                     : signal == SIGKILL ? " (out of memory? see the kernel's log)"
                                         : "");
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lerobot::distributed
