// Several ranks for a test: real processes, each with a World of its own on this machine.
//
//   run_ranks({.dp_replicate = 2, .dp_shard = 2}, [](const World& world) {
//     EXPECT_EQ(world.shards().size(), 2);
//   });
//
// Ranks are forked from the test's process, which should not have computed with torch's threads
// before; each computes with one thread. Assertions that fail in a rank, and what it throws, fail
// the test with the rank's output. `body` may capture anything, but what it changes stays in the
// rank's process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lerobot/distributed/launch_environment.h"
#include "lerobot/distributed/world.h"

namespace lerobot::distributed {

struct Degrees {
  std::int64_t dp_replicate = 1;
  std::int64_t dp_shard = 1;
};

/// How one rank ended.
struct RankEnd {
  std::int64_t rank = 0;
  /// 0 when nothing went wrong, 1 after an exception or a failed assertion, 128 + n after signal n.
  int exit_code = 0;
  /// What it wrote to standard output and standard error.
  std::string output;
  /// What it threw.
  std::string error;
  /// From the start of all ranks until its end.
  double seconds = 0;
};

constexpr std::chrono::seconds kRankLimit{60};

/// Runs `body` in every rank of a world of that shape and fails the test unless all succeed. Ranks
/// that have not ended after `limit` are killed, and the test fails.
void run_ranks(Degrees degrees, const std::function<void(const World&)>& body,
               std::chrono::seconds limit = kRankLimit);
/// The same for a world of replicas (DDP).
void run_ranks(std::int64_t ranks, const std::function<void(const World&)>& body,
               std::chrono::seconds limit = kRankLimit);

/// How the ranks of such a world end, for tests in which some are meant to fail. An exception that
/// leaves `body` is reported to the other ranks as a program would.
std::vector<RankEnd> ends_of_ranks(Degrees degrees, const std::function<void(const World&)>& body,
                                   const WorldOptions& options = {},
                                   std::chrono::seconds limit = kRankLimit);

/// The layer below: processes with the environments that a launcher would give them. `body` makes
/// its own World, or none.
std::vector<RankEnd> ends_of_processes(const std::vector<LaunchEnvironment>& environments,
                                       const std::function<void(const LaunchEnvironment&)>& body,
                                       std::chrono::seconds limit = kRankLimit);

/// A port of this machine that stays free for a rank to listen at for as long as the object lives.
class ReservedPort {
 public:
  ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  ~ReservedPort();
  std::uint16_t number() const { return number_; }

 private:
  int socket_;
  std::uint16_t number_ = 0;
};

/// The environments of `ranks` processes on this machine that meet at `port`.
std::vector<LaunchEnvironment> local_environments(std::int64_t ranks, std::uint16_t port);

/// Everything about the ranks' ends in one text, for a failed test.
std::string describe(const std::vector<RankEnd>& ends);

}  // namespace lerobot::distributed
