// Starts the workers of one machine, and does not go before they have gone.
//
//   running   until all have ended, or one fails, or the user asks for an end
//   ending    SIGTERM has been sent; after the grace period comes SIGKILL
//   killed    SIGKILL has been sent
//
// The launcher adopts processes whose parents have ended (PR_SET_CHILD_SUBREAPER), so what the
// workers leave behind is its child sooner or later: no children means that nothing is left.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "lerobot/distributed/launch/console.h"
#include "lerobot/distributed/launch/log_folder.h"
#include "lerobot/distributed/launch/machine.h"
#include "lerobot/distributed/launch/orphan_guard.h"
#include "lerobot/distributed/launch/plan.h"
#include "lerobot/distributed/launch/signal_reader.h"
#include "lerobot/distributed/launch/worker_output.h"

namespace lerobot::distributed {

/// One thread, one loop over poll(). Use once.
class Launcher {
 public:
  /// `console` must outlive the object. Throws SystemError.
  Launcher(LaunchPlan plan, std::string host_name, Console& console);

  /// Runs the job. Returns 0, the exit code of the worker that failed first (128 + n for signal n),
  /// or 128 + n when signal n asked for an end. Throws Error when a worker can't be started; the
  /// others have ended then.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kRunning, kEnding, kKilled };

  struct Worker {
    int local_rank;
    pid_t pid;
    WorkerOutput output;
    Clock::time_point started;
    bool running = true;
    bool group_exists = true;  // the worker's process group, which may outlive it
  };

  struct Failure {
    int rank;
    int local_rank;
    pid_t pid;
    int status;  // waitpid()'s
    double seconds;
  };

  void run_once(int restart);
  void start_workers(int restart);
  void start_worker_of(int local_rank, int restart, int master_port);
  void run_until_nothing_is_left();

  // What happens.
  void wait();
  void add_console_to(std::vector<pollfd>& waited);
  void take_signals();
  void take_end_request(int signal);
  void stop_and_continue();
  void reap();
  bool reap_ended();
  void forget_empty_groups();
  void on_end(Worker& worker, int status);
  bool ended_as_asked(int status) const;
  void read_output();
  void drain_output();

  // What is done about it.
  void end_workers();
  void end_what_is_left();
  void kill_workers();
  void signal_groups(int signal);
  void signal_children(int signal);
  void check_deadline();
  void report_failure();
  void flush_console();

  bool any_running() const;
  std::vector<pid_t> left_behind() const;

  LaunchPlan plan_;
  std::string host_name_;
  Console& console_;
  OrphanGuard guard_;  // before signals are blocked, which it would inherit
  SignalReader signals_;
  LogFolder logs_;

  std::vector<Worker> workers_;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;  // of SIGKILL, then of giving up
  bool children_changed_ = true;
  bool nothing_left_ = false;
  bool told_what_is_left_ = false;
  int interrupted_ = 0;  // the signal that asked for an end
  std::optional<Failure> failure_;
};

}  // namespace lerobot::distributed
