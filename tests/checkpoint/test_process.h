// Running a piece of a test in a process of its own: without privileges, or under faults that the
// kernel injects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot {

/// Runs `function` in a child and returns what it returned; the message of an Error comes back the
/// same way.
inline std::string in_child(const std::function<std::string()>& function) {
  int ends[2];
  if (::pipe(ends) != 0) fail_system(errno, "pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    std::string message;
    try {
      message = function();
    } catch (const std::exception& error) {
      message = error.what();
    }
    [[maybe_unused]] const ssize_t n = ::write(ends[1], message.data(), message.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string result;
  std::array<char, 4096> buffer{};
  ssize_t n = 0;
  while ((n = ::read(ends[0], buffer.data(), buffer.size())) > 0)
    result.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? result : fmt::format("child ended with status {}", status);
}

/// From now on the system call fails with `error` in this process.
inline void let_system_call_fail(std::uint32_t number, std::uint32_t error) {
  std::array<sock_filter, 4> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{code.size(), code.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    fail_system(errno, "seccomp");
}

}  // namespace lerobot
