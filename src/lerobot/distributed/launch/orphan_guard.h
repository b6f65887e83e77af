// Ends the workers' processes when the launcher is killed so that it cannot do so itself.
#pragma once

#include <sys/types.h>

#include "lerobot/base/files.h"

namespace lerobot::distributed {

/// A small process beside the launcher that holds the numbers of the workers' process groups and
/// waits for the launcher's end. The kernel itself kills the workers then (PR_SET_PDEATHSIG), but
/// not the processes that they have started; those stay in their groups.
/// It has a session of its own, so that what kills the launcher's group does not reach it.
class OrphanGuard {
 public:
  /// Starts the process. Throws SystemError.
  OrphanGuard();
  OrphanGuard(const OrphanGuard&) = delete;
  OrphanGuard& operator=(const OrphanGuard&) = delete;
  /// Ends it, and with it the groups that it still watches.
  ~OrphanGuard();

  pid_t pid() const { return pid_; }

  /// The calling process leads a group from now on. For a worker between fork and exec: calls
  /// nothing but write().
  void watch_own_group() const;
  /// Nothing is left of a group: its number may soon be somebody else's.
  void forget(pid_t group) const;

 private:
  pid_t pid_ = -1;
  UniqueFd pipe_;  // the guard reads the other end, and sees it end with the launcher
};

}  // namespace lerobot::distributed
