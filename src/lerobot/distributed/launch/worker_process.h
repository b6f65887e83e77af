// One started worker: a process that leads a group of its own.
#pragma once

#include <string>
#include <sys/types.h>

#include "lerobot/base/files.h"
#include "lerobot/distributed/launch/environment.h"
#include "lerobot/distributed/launch/orphan_guard.h"
#include "lerobot/distributed/launch/plan.h"

namespace lerobot::distributed {

struct StartedWorker {
  pid_t pid = 0;    // also the number of its process group
  UniqueFd output;  // what it writes, non-blocking
  UniqueFd error;
};

/// Starts plan.program with `environment`. It reads nothing (/dev/null), leads a process group that
/// `guard` watches, begins with no signal blocked, and is killed by the kernel when the launcher
/// ends. Returns when the program has really been started; throws SystemError otherwise.
StartedWorker start_worker(const LaunchPlan& plan, const Environment& environment,
                           const OrphanGuard& guard);

/// "exit code 3" or "signal SIGSEGV (core dumped)", of waitpid()'s status.
std::string describe_end(int status);

/// The exit code of a shell for waitpid()'s status: 128 + n for signal n.
int exit_code_of(int status);

}  // namespace lerobot::distributed
