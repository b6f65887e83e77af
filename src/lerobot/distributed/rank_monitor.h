// Who of a run's processes is alive. Every rank holds a connection to rank 0 for as long as it
// lives and says once a second that it is there; rank 0 says so to the others, and tells all of
// them what happened to one.
//
//   a connection that closes without a farewell   its process is gone: noticed at once
//   nothing heard for the silence limit           a frozen process or a broken network
//   a failure that a rank reports                  passed on with its text
//
// Silence is counted in the listener's own seconds of work, so that a pause of the whole machine
// (a suspended laptop, a stopped job) counts as none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lerobot/base/files.h"
#include "lerobot/distributed/mesh.h"
#include "lerobot/distributed/sockets.h"

namespace lerobot::distributed {

/// "ranks 2, 5 and 7 of 8", for any number of them.
std::string name_ranks(const std::vector<std::int64_t>& ranks, std::int64_t world_size);

/// Thread-safe.
class RankMonitor {
 public:
  /// Rank 0, with a socket that listens; the others, connected with it. `token` is a word that only
  /// this run's processes know.
  RankMonitor(const Mesh& mesh, UniqueFd socket, const std::string& token,
              std::chrono::milliseconds silence_limit);
  RankMonitor(const RankMonitor&) = delete;
  RankMonitor& operator=(const RankMonitor&) = delete;
  /// Says farewell.
  ~RankMonitor();

  /// Returns when all ranks have come. Rank 0 decides when it has waited for too long and says who
  /// is missing. Throws Error; Interrupted on Ctrl-C.
  void wait_for_all(std::chrono::milliseconds limit);
  /// The address at which the other machines' ranks reach this one; a loopback address when there
  /// is one machine. After wait_for_all().
  std::string reachable_address() const;

  /// Tells the others that this rank is through, and returns when all are, or after some seconds:
  /// what one of them still waits for may be in a connection that would be closed too early.
  void leave();

  /// Tells the others why this rank will end, unless the reason came from one of them.
  void report_failure(const std::string& message);
  /// Throws Error when something has happened to another rank: for waits of our own.
  void check(const std::string& operation);
  /// Throws Error saying why an operation did not work: what is known about the other ranks, or
  /// becomes known within seconds, otherwise `reason`.
  [[noreturn]] void fail_operation(const std::string& operation, const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer;

  void run();
  void wake();
  void poll_once();
  void accept_peers();
  void hear(Peer& peer);
  void hear_from_peer(Peer& peer, const std::string& line);
  void hear_from_first(const std::string& line);
  void greet(Peer& peer, const std::string& greeting);
  bool admit(const Peer& peer);
  void notice_closed(Peer& peer);
  void tick();
  void tell_all(const std::string& line);
  void condemn(const std::string& verdict);
  void end_process_when_stuck();
  void say_farewell();
  void say_left();
  std::vector<std::int64_t> missing() const;
  void log_who_is_missing();

  const Mesh mesh_;
  const std::string token_;
  const std::int64_t silence_limit_;  // in ticks

  // The monitor's thread alone.
  UniqueFd listener_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::int64_t ticks_ = 0;
  bool told_complete_ = false;

  UniqueFd wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::set<std::int64_t> present_;
  std::set<std::int64_t> departed_;
  bool complete_ = false;
  std::string first_address_;
  std::string own_address_;
  std::optional<std::string> verdict_;
  std::optional<Clock::time_point> deadline_;
  std::optional<std::string> own_failure_;
  bool failure_sent_ = false;
  bool leaving_ = false;
  bool left_sent_ = false;  // the monitor's thread alone
  std::thread thread_;
};

}  // namespace lerobot::distributed
