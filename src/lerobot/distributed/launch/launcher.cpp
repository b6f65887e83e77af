#include "lerobot/distributed/launch/launcher.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/distributed/launch/worker_process.h"

namespace lerobot::distributed {
namespace {

/// A process that SIGKILL does not end within this time hangs in the kernel (a dead network file
/// system, a GPU that does not answer): nobody can end it.
constexpr std::chrono::seconds kKillTime{10};

std::string workers_text(std::size_t count) {
  return count == 1 ? "1 worker" : fmt::format("{} workers", count);
}

}  // namespace

Launcher::Launcher(LaunchPlan plan, std::string host_name, Console& console)
    : plan_(std::move(plan)), host_name_(std::move(host_name)), console_(console), logs_(plan_) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int Launcher::run() {
  for (const std::string& note : plan_.notes) console_.launch_line(note);
  if (!logs_.path().empty())
    console_.launch_line(fmt::format("output is kept in {}", logs_.path().string()));
  for (int restart = 0;; ++restart) {
    run_once(restart);
    if (failure_) report_failure();
    if (!failure_ || interrupted_ != 0 || restart == plan_.max_restarts) break;
    console_.launch_line(fmt::format("starting {} again (restart {} of {})",
                                     workers_text(workers_.size()), restart + 1,
                                     plan_.max_restarts));
  }
  flush_console();
  if (interrupted_ != 0) return 128 + interrupted_;
  return failure_ ? exit_code_of(failure_->status) : 0;
}

void Launcher::run_once(int restart) {
  workers_.clear();
  failure_.reset();
  deadline_.reset();
  phase_ = Phase::kRunning;
  nothing_left_ = told_what_is_left_ = false;
  children_changed_ = true;
  try {
    start_workers(restart);
  } catch (const Error&) {
    kill_workers();
    run_until_nothing_is_left();
    flush_console();
    throw;
  }
  run_until_nothing_is_left();
}

void Launcher::start_workers(int restart) {
  const int port = plan_.master_port != 0 ? plan_.master_port : free_local_port();
  workers_.reserve(static_cast<std::size_t>(plan_.local_workers));
  for (int local_rank = 0; local_rank < plan_.local_workers; ++local_rank)
    start_worker_of(local_rank, restart, port);
}

void Launcher::start_worker_of(int local_rank, int restart, int master_port) {
  StartedWorker started =
      start_worker(plan_, worker_environment(plan_, local_rank, restart, master_port), guard_);
  // First of all it is known: what fails from here on ends it.
  workers_.push_back(
      {local_rank, started.pid, WorkerOutput(plan_.rank(local_rank), console_), Clock::now()});
  WorkerOutput& output = workers_.back().output;
  output.connect(Stream::kOutput, logs_.route(plan_, local_rank, restart, Stream::kOutput,
                                              std::move(started.output)));
  output.connect(Stream::kError,
                 logs_.route(plan_, local_rank, restart, Stream::kError, std::move(started.error)));
}

void Launcher::run_until_nothing_is_left() {
  while (true) {
    if (std::exchange(children_changed_, false)) reap();
    if (nothing_left_) break;
    wait();
    take_signals();
    read_output();
    console_.flush();
    check_deadline();
  }
  drain_output();
}

// --- What happens
// ---------------------------------------------------------------------------------

void Launcher::wait() {
  std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
  // When nobody reads what we write, workers have to wait as if they wrote there themselves.
  if (!console_.is_full())
    for (const Worker& worker : workers_)
      for (const Stream stream : {Stream::kOutput, Stream::kError})
        if (worker.output.pipe(stream) >= 0)
          waited.push_back({worker.output.pipe(stream), POLLIN, 0});
  add_console_to(waited);

  int timeout = -1;
  if (deadline_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
    timeout = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
  }
  if (::poll(waited.data(), waited.size(), timeout) < 0 && errno != EINTR && errno != EAGAIN)
    fail_system(errno, "waiting for the workers failed");
}

void Launcher::add_console_to(std::vector<pollfd>& waited) {
  for (const Stream stream : {Stream::kOutput, Stream::kError})
    if (console_.sink(stream).has_pending())
      waited.push_back({console_.sink(stream).fd(), POLLOUT, 0});
}

void Launcher::take_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD)
      children_changed_ = true;
    else if (*signal == SIGTSTP)
      stop_and_continue();
    else if (asks_for_end(*signal))
      take_end_request(*signal);
    else
      signal_groups(*signal);
  }
}

void Launcher::take_end_request(int signal) {
  const bool first = interrupted_ == 0 && phase_ == Phase::kRunning;
  if (interrupted_ == 0) interrupted_ = signal;
  if (!first) {
    console_.launch_line(fmt::format("{}: killing the workers", signal_name(signal)));
    return kill_workers();
  }
  const auto running = std::count_if(workers_.begin(), workers_.end(),
                                     [](const Worker& worker) { return worker.running; });
  console_.launch_line(fmt::format("{}: passed on to {}; a second one kills", signal_name(signal),
                                   workers_text(static_cast<std::size_t>(running))));
  signal_groups(signal);
}

/// Ctrl-Z, and the "fg" that follows. The workers have groups of their own, which the terminal
/// does not know.
void Launcher::stop_and_continue() {
  signal_groups(SIGSTOP);
  ::raise(SIGSTOP);
  signal_groups(SIGCONT);
}

void Launcher::reap() {
  while (reap_ended()) continue;
  forget_empty_groups();
  if (any_running()) return;
  if (!left_behind().empty()) return end_what_is_left();
  // The kernel may leave some out of its list while another one ends.
  nothing_left_ = !reap_ended();
  children_changed_ = !nothing_left_;
}

/// Takes note of one process that has ended, a worker or an orphan. False when there is none.
bool Launcher::reap_ended() {
  int status = 0;
  pid_t pid = 0;
  do pid = ::waitpid(-1, &status, WNOHANG);
  while (pid < 0 && errno == EINTR);
  if (pid <= 0) return false;
  const auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& known) {
    return known.running && known.pid == pid;
  });
  if (worker != workers_.end()) on_end(*worker, status);
  return true;
}

/// The number of a group in which nobody is left may become somebody else's.
void Launcher::forget_empty_groups() {
  for (Worker& worker : workers_) {
    if (worker.running || !worker.group_exists) continue;
    if (::kill(-worker.pid, 0) == 0 || errno != ESRCH) continue;
    worker.group_exists = false;
    guard_.forget(worker.pid);
  }
}

void Launcher::on_end(Worker& worker, int status) {
  worker.running = false;
  const bool ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (ended_well || failure_ || phase_ != Phase::kRunning || ended_as_asked(status)) return;

  failure_ = Failure{plan_.rank(worker.local_rank), worker.local_rank, worker.pid, status,
                     std::chrono::duration<double>(Clock::now() - worker.started).count()};
  // Its last words, before the others say that they miss it.
  for (const Stream stream : {Stream::kOutput, Stream::kError})
    while (!console_.is_full() && worker.output.read(stream)) continue;
  console_.launch_line(fmt::format("rank {} (pid {}) failed: {}{}", failure_->rank, worker.pid,
                                   describe_end(status),
                                   any_running() ? "; ending the others" : ""));
  end_workers();
}

/// An end that the signal asked for, by the program itself or by the signal's default action.
bool Launcher::ended_as_asked(int status) const {
  return interrupted_ != 0 && exit_code_of(status) == 128 + interrupted_;
}

void Launcher::read_output() {
  for (Worker& worker : workers_)
    for (const Stream stream : {Stream::kOutput, Stream::kError})
      if (!console_.is_full()) worker.output.read(stream);
}

/// Nobody is left who could write more, but pipes hold what was written last.
void Launcher::drain_output() {
  while (true) {
    bool open = false;
    for (Worker& worker : workers_)
      for (const Stream stream : {Stream::kOutput, Stream::kError}) {
        if (worker.output.pipe(stream) >= 0) worker.output.drain(stream);
        open = open || worker.output.pipe(stream) >= 0;
      }
    if (!open) return;
    flush_console();  // it was full
  }
}

// --- What is done about it
// ------------------------------------------------------------------------

void Launcher::end_workers() {
  phase_ = Phase::kEnding;
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(plan_.shutdown_grace_s));
  signal_groups(SIGTERM);
  // A stopped process takes no SIGTERM.
  signal_groups(SIGCONT);
}

/// All workers have ended, but not all that they have started.
void Launcher::end_what_is_left() {
  if (phase_ == Phase::kKilled) return signal_children(SIGKILL);
  if (std::exchange(told_what_is_left_, true)) return;
  if (phase_ == Phase::kRunning) {
    console_.launch_line("the workers have left processes behind; ending them");
    end_workers();
  }
  signal_children(SIGTERM);
}

void Launcher::kill_workers() {
  phase_ = Phase::kKilled;
  deadline_ = Clock::now() + kKillTime;
  signal_groups(SIGKILL);
  if (!any_running()) signal_children(SIGKILL);
}

void Launcher::signal_groups(int signal) {
  for (const Worker& worker : workers_)
    if (worker.group_exists) ::kill(-worker.pid, signal);
}

/// For processes that have left their group. Only when no worker runs: before that they are not
/// ours yet.
void Launcher::signal_children(int signal) {
  for (const pid_t child : left_behind()) ::kill(child, signal);
}

void Launcher::check_deadline() {
  if (!deadline_ || Clock::now() < *deadline_) return;
  if (phase_ == Phase::kEnding) {
    console_.launch_line(fmt::format("still running {} s after SIGTERM: killing{}",
                                     plan_.shutdown_grace_s,
                                     any_running() ? " the workers" : " what they left behind"));
    return kill_workers();
  }
  console_.launch_line(
      fmt::format("not even SIGKILL ends process {}: left behind", fmt::join(left_behind(), ", ")));
  nothing_left_ = true;
}

void Launcher::report_failure() {
  console_.launch_line(
      fmt::format("FAILED: rank {} was the first (local rank {} of {}, pid {}): {} "
                  "after {:.1f} s",
                  failure_->rank, failure_->local_rank, host_name_, failure_->pid,
                  describe_end(failure_->status), failure_->seconds));
  const auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& known) {
    return known.local_rank == failure_->local_rank;
  });
  const auto& lines = worker->output.last_lines();
  console_.launch_line(lines.empty() ? "it has written nothing" : "its last lines:");
  for (const std::string& line : lines) console_.launch_line("  | " + line);
}

/// Waits until everything is written, or a signal says that nobody waits for it.
void Launcher::flush_console() {
  console_.flush();
  while (console_.has_pending()) {
    std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
    add_console_to(waited);
    ::poll(waited.data(), waited.size(), -1);
    while (const std::optional<int> signal = signals_.next())
      if (asks_for_end(*signal)) {
        if (interrupted_ == 0) interrupted_ = *signal;
        console_.abandon();
      }
    console_.flush();
  }
}

bool Launcher::any_running() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.running; });
}

/// Children but for the guard: once no worker runs, what the workers have started and left.
std::vector<pid_t> Launcher::left_behind() const {
  std::vector<pid_t> result;
  std::ifstream list(fmt::format("/proc/self/task/{}/children", ::getpid()));
  for (pid_t child = 0; list >> child;)
    if (child != guard_.pid()) result.push_back(child);
  return result;
}

}  // namespace lerobot::distributed
