#include "lerobot/distributed/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/distributed/sockets.h"

namespace lerobot::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kFirst = "first";
/// Rank 0 listens before it says where: only a firewall or the end of rank 0 takes longer.
constexpr seconds kUntilConnected{10};

std::string key_of(std::int64_t rank) { return fmt::format("here/{}", rank); }

/// Calls `done` more and more rarely until it returns true; false when the time is over. Says what
/// it waits for after some seconds, and then now and again.
template <class Done, class Describe>
bool wait_until(Clock::time_point end, const Done& done, const Describe& describe) {
  constexpr milliseconds kShortest{2}, kLongest{100};
  constexpr seconds kUntilNotice{3}, kBetweenNotices{30};
  auto notice = Clock::now() + kUntilNotice;
  for (milliseconds pause = kShortest; !done(); pause = std::min(pause * 2, kLongest)) {
    throw_when_interrupted();
    if (Clock::now() >= end) return false;
    if (Clock::now() >= notice) {
      log::info("waiting for {}", describe());
      notice = Clock::now() + kBetweenNotices;
    }
    std::this_thread::sleep_for(pause);
  }
  return true;
}

class Rendezvous {
 public:
  Rendezvous(const LaunchEnvironment& environment, const Mesh& mesh, const WorldOptions& options)
      : environment_(environment),
        mesh_(mesh),
        options_(options),
        place_(fmt::format("{}:{}", environment.master_addr, environment.master_port)),
        end_(Clock::now() + options.start_timeout) {}

  Meeting meet() {
    try {
      Meeting meeting;
      meeting.store = open_store();
      meeting.monitor =
          mesh_.rank == 0 ? open_monitor(*meeting.store) : join_monitor(*meeting.store);
      return meeting;
    } catch (const c10::Error& error) {
      fail("{}, at {} (MASTER_ADDR, MASTER_PORT), ended while the ranks met: {}", server(), place_,
           error.what_without_backtrace());
    }
  }

 private:
  bool serves_store() const { return mesh_.rank == 0 && !environment_.launcher_serves_store; }
  std::string server() const {
    return environment_.launcher_serves_store ? "the launcher, which serves the store"
                                              : "rank 0, which serves the store";
  }
  double timeout_seconds() const {
    return static_cast<double>(options_.start_timeout.count()) / 1e3;
  }

  c10::intrusive_ptr<c10d::Store> open_store() {
    c10d::TCPStoreOptions store;
    store.port = environment_.master_port;
    store.timeout = options_.start_timeout;
    store.waitWorkers = false;
    std::string host = environment_.master_addr;
    if (serves_store()) {
      store.isServer = true;
      store.masterListenFd = listen_for_store().release();
      // The machine's own name need not lead to itself.
      host = "localhost";
    } else {
      wait_for_store();
    }
    // An earlier attempt's keys stay in a store that the launcher serves.
    return c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("lerobot/attempt_{}", environment_.restart_count),
        c10::make_intrusive<c10d::TCPStore>(host, store));
  }

  UniqueFd listen_for_store() const {
    try {
      return listen_at(environment_.master_port);
    } catch (const SystemError& error) {
      if (error.error_number() != EADDRINUSE) throw;
      fail(
          "port {} of this machine, at which rank 0 is to serve the store (MASTER_PORT), is in "
          "use: "
          "end the run or program that has it, or choose another port (--master-port of the "
          "launcher)",
          environment_.master_port);
    }
  }

  /// TCPStore's own constructor could not be interrupted, and would not say what it waits for.
  void wait_for_store() const {
    constexpr milliseconds kAttempt{2000};
    std::string problem;
    const auto reached = [&] {
      Connection connection =
          connect_to(environment_.master_addr, environment_.master_port, kAttempt);
      problem = connection.problem;
      return connection.socket.get() >= 0;
    };
    const auto describe = [&] { return fmt::format("{}, at {}: {}", server(), place_, problem); };
    if (wait_until(end_, reached, describe)) return;
    fail(
        "{}, did not come within {} s at {} (MASTER_ADDR, MASTER_PORT): {}. Longer waits: "
        "LEROBOT_START_TIMEOUT_S",
        server(), timeout_seconds(), place_, problem);
  }

  std::shared_ptr<RankMonitor> open_monitor(c10d::Store& store) const {
    if (store.add("first_came", 1) > 1)
      fail("two processes came as rank 0 to {}: give every process a rank of its own", place_);
    const std::string token = fmt::format("{:08x}", std::random_device{}());
    UniqueFd listener = listen_at(0);
    const std::uint16_t port = port_of(listener.get());
    auto monitor =
        std::make_shared<RankMonitor>(mesh_, std::move(listener), token, options_.silence_limit);
    store.set(key_of(0), std::string("here"));
    store.set(kFirst, fmt::format("{} {}", port, token));
    return wait_for_all(std::move(monitor));
  }

  std::shared_ptr<RankMonitor> join_monitor(c10d::Store& store) const {
    store.set(key_of(mesh_.rank), std::string("here"));
    const auto is_there = [&] { return store.check({kFirst}); };
    if (!wait_until(end_, is_there, [&] { return name_ranks(missing(store), mesh_.world_size()); }))
      fail("{} did not come within {} s to {} (see their logs, or LEROBOT_START_TIMEOUT_S)",
           name_ranks(missing(store), mesh_.world_size()), timeout_seconds(), place_);
    const std::string text = store.get_to_str(kFirst);
    const std::size_t blank = text.find(' ');
    const auto port = static_cast<std::uint16_t>(std::stoul(text));
    return wait_for_all(std::make_shared<RankMonitor>(
        mesh_, connect_to_first(port), text.substr(blank + 1), options_.silence_limit));
  }

  UniqueFd connect_to_first(std::uint16_t port) const {
    Connection connection;
    const auto connected = [&] {
      connection = connect_to(environment_.master_addr, port, milliseconds(kUntilConnected));
      return connection.socket.get() >= 0;
    };
    const auto describe = [&] {
      return fmt::format("rank 0 at {}:{}", environment_.master_addr, port);
    };
    if (!wait_until(Clock::now() + kUntilConnected, connected, describe))
      fail(
          "rank 0 is out of reach at {}:{}: {}. The ranks' machines need free TCP ports between "
          "them, and MASTER_ADDR must be the machine of rank 0",
          environment_.master_addr, port, connection.problem);
    return std::move(connection.socket);
  }

  std::shared_ptr<RankMonitor> wait_for_all(std::shared_ptr<RankMonitor> monitor) const {
    // Rank 0 decides; what it has left is at most what is left here when it came first.
    monitor->wait_for_all(options_.start_timeout);
    return monitor;
  }

  std::vector<std::int64_t> missing(c10d::Store& store) const {
    std::vector<std::int64_t> ranks;
    for (std::int64_t rank = 0; rank < mesh_.world_size(); ++rank)
      if (!store.check({key_of(rank)})) ranks.push_back(rank);
    return ranks;
  }

  const LaunchEnvironment& environment_;
  const Mesh& mesh_;
  const WorldOptions& options_;
  const std::string place_;
  const Clock::time_point end_;
};

}  // namespace

Meeting meet(const LaunchEnvironment& environment, const Mesh& mesh, const WorldOptions& options) {
  return Rendezvous(environment, mesh, options).meet();
}

}  // namespace lerobot::distributed
