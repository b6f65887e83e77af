#include "lerobot/distributed/world.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <thread>
#include <unistd.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/distributed/rank_monitor.h"
#include "lerobot/distributed/sockets.h"
#include "tests/support/error_of.h"
#include "tests/support/ranks.h"

namespace lerobot::distributed {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Lt;

constexpr int kKilled = 128 + SIGKILL;

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

void add_up_for_ever(const Communicator& group) {
  const at::Tensor x = at::full({10'000}, 1.F);
  while (true) group.all_reduce(x, Reduction::kAverage).wait();
}

WorldOptions starting_within(std::chrono::milliseconds limit) {
  WorldOptions options;
  options.start_timeout = limit;
  return options;
}

WorldOptions silent_for(std::chrono::milliseconds limit) {
  WorldOptions options;
  options.silence_limit = limit;
  return options;
}

World make_world(const LaunchEnvironment& environment, const WorldOptions& options = {}) {
  return {environment, {environment.rank, environment.world_size, 1}, at::kCPU, options};
}

/// Only the ranks of a list come to a world of `world_size`.
std::vector<RankEnd> ends_when_come(std::int64_t world_size, const std::vector<std::int64_t>& ranks,
                                    const WorldOptions& options,
                                    const LaunchEnvironment& changes = {}) {
  const ReservedPort port;
  std::vector<LaunchEnvironment> environments;
  for (const std::int64_t rank : ranks) {
    environments.push_back(local_environments(world_size, port.number())[rank]);
    environments.back().master_addr = changes.master_addr;
    if (changes.master_port != 0) environments.back().master_port = changes.master_port;
  }
  return ends_of_processes(environments, [&](const LaunchEnvironment& environment) {
    make_world(environment, options);
  });
}

/// What a rank said about its end, wherever it said it.
std::string words_of(const RankEnd& end) { return end.error + "\n" + end.output; }

void expect_all_others_name(const std::vector<RankEnd>& ends, std::int64_t rank,
                            double within_seconds) {
  for (const RankEnd& end : ends) {
    if (end.rank == rank) continue;
    EXPECT_EQ(end.exit_code, 1) << describe(ends);
    EXPECT_THAT(words_of(end), ContainsRegex(fmt::format("rank {} (\\([^)]*\\) )?is gone", rank)))
        << describe(ends);
    EXPECT_THAT(end.seconds, Lt(within_seconds)) << describe(ends);
  }
}

// --- meeting ------------------------------------------------------------------------------------

TEST(World, AProcessAloneIsAWorldOfOne) {
  const World world;
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_TRUE(world.is_main());
  EXPECT_EQ(world.all().size(), 1);
  world.background().barrier();
  world.report_failure("nobody hears it");
}

TEST(World, RanksMeetAndKnowTheirPlaces) {
  run_ranks({2, 2}, [](const World& world) {
    EXPECT_EQ(world.size(), 4);
    EXPECT_EQ(world.local_rank(), world.rank());
    EXPECT_EQ(world.is_main(), world.rank() == 0);
    EXPECT_EQ(world.mesh().replica(), world.rank() / 2);
    const at::Tensor x = at::full({3}, static_cast<float>(world.rank() + 1));
    world.all().all_reduce(x, Reduction::kSum).wait();
    EXPECT_TRUE(at::equal(x, at::full({3}, 10.F)));
  });
}

TEST(World, AMovedWorldGoesOn) {
  run_ranks(2, [](const World&) {});
  const auto environments_are_met = [](const LaunchEnvironment& environment) {
    World first = make_world(environment);
    World second(std::move(first));
    first = std::move(second);
    first.all().barrier();
  };
  const ReservedPort port;
  for (const RankEnd& end :
       ends_of_processes(local_environments(2, port.number()), environments_are_met))
    EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(World, RanksThatDoNotComeAreNamedByThoseThatDid) {
  for (const RankEnd& end : ends_when_come(4, {0, 1, 3}, starting_within(1s))) {
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_THAT(end.error, AllOf(HasSubstr("rank 2 of 4 did not come within 1 s"),
                                 HasSubstr("LEROBOT_START_TIMEOUT_S")));
    EXPECT_THAT(end.seconds, Lt(4));
  }
  for (const RankEnd& end : ends_when_come(4, {0, 2}, starting_within(1s)))
    EXPECT_THAT(end.error, HasSubstr("ranks 1, 3 of 4 did not come within 1 s"));
}

TEST(World, AMissingRankZeroIsNamedWithItsAddress) {
  for (const RankEnd& end : ends_when_come(3, {1, 2}, starting_within(1s)))
    EXPECT_THAT(
        end.error,
        ContainsRegex("rank 0, which serves the store, did not come within 1 s at "
                      "127.0.0.1:[0-9]+ \\(MASTER_ADDR, MASTER_PORT\\): Connection refused"));
}

TEST(World, WhoWaitsSaysForWhom) {
  const auto ends = ends_when_come(2, {0}, starting_within(4s));
  EXPECT_THAT(ends[0].output, HasSubstr("waiting for rank 1 of 2"));
}

TEST(World, AnAddressThatIsNotKnownIsSaid) {
  const auto ends =
      ends_when_come(2, {1}, starting_within(500ms), {.master_addr = "no-such-machine.invalid"});
  EXPECT_THAT(ends[0].error, HasSubstr("at no-such-machine.invalid:"));
  EXPECT_THAT(ends[0].error, HasSubstr("its name is not known"));
}

TEST(World, APortThatIsInUseIsSaid) {
  const UniqueFd taken = listen_at(0);
  const std::uint16_t port = port_of(taken.get());
  const auto ends = ends_when_come(2, {0}, starting_within(5s), {.master_port = port});
  EXPECT_THAT(ends[0].error, AllOf(HasSubstr(fmt::format("port {} of this machine", port)),
                                   HasSubstr("is in use"), HasSubstr("--master-port")));
}

TEST(World, TwoProcessesOfOneRankAreRefused) {
  const auto ends = ends_when_come(3, {0, 1, 1}, starting_within(20s));
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_THAT(end.error, AllOf(HasSubstr("rank 1 ("),
                                 HasSubstr("came although a process with that rank is here")));
    EXPECT_THAT(end.seconds, Lt(5));
  }
}

TEST(World, ProcessesOfDifferentShapesAreRefused) {
  const ReservedPort port;
  const auto ends =
      ends_of_processes(local_environments(2, port.number()), [](const LaunchEnvironment& launch) {
        const Mesh mesh = launch.rank == 0 ? Mesh{0, 2, 1} : Mesh{1, 1, 2};
        const World world(launch, mesh, at::kCPU);
      });
  for (const RankEnd& end : ends)
    EXPECT_THAT(end.error,
                HasSubstr("was started for dp_replicate x dp_shard = 1x2, rank 0 for 2x1"));
}

TEST(World, CtrlCEndsTheWait) {
  for (const std::int64_t rank : {0, 1}) {
    const ReservedPort port;
    const auto ends = ends_of_processes({local_environments(2, port.number())[rank]},
                                        [](const LaunchEnvironment& environment) {
                                          const InterruptGuard guard("");
                                          std::thread user([] {
                                            std::this_thread::sleep_for(300ms);
                                            ::kill(::getpid(), SIGINT);
                                          });
                                          user.detach();
                                          make_world(environment);
                                        });
    EXPECT_EQ(ends[0].error, "stopped by SIGINT");
    EXPECT_THAT(ends[0].seconds, Lt(3));
  }
}

// --- torchrun's store ---------------------------------------------------------------------------

/// Ranks of a list, and beside them a launcher that serves the store, as rank `world_size`.
std::vector<RankEnd> ends_under_torchrun(
    std::int64_t world_size, const std::vector<std::int64_t>& ranks,
    const std::function<void(const LaunchEnvironment&)>& body) {
  const ReservedPort port;
  std::vector<LaunchEnvironment> environments;
  for (const std::int64_t rank : ranks) {
    environments.push_back(local_environments(world_size, port.number())[rank]);
    environments.back().launcher_serves_store = true;
  }
  environments.push_back(environments.back());
  environments.back().rank = world_size;
  return ends_of_processes(environments, [&](const LaunchEnvironment& environment) {
    if (environment.rank < world_size) return body(environment);
    c10d::TCPStoreOptions options;
    options.port = environment.master_port;
    options.isServer = true;
    options.waitWorkers = false;
    options.masterListenFd = listen_at(environment.master_port).release();
    const auto store = c10::make_intrusive<c10d::TCPStore>("localhost", options);
    std::this_thread::sleep_for(2500ms);
  });
}

TEST(World, TorchrunsStoreServesEveryAttempt) {
  const auto ends = ends_under_torchrun(2, {0, 1}, [](LaunchEnvironment environment) {
    for (environment.restart_count = 0; environment.restart_count < 3;
         ++environment.restart_count) {
      const World world = make_world(environment, starting_within(3s));
      world.all().barrier();
    }
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << describe(ends);
}

TEST(World, UnderTorchrunAMissingRankZeroIsNamedWithTheOthers) {
  const auto ends = ends_under_torchrun(4, {1, 2}, [](const LaunchEnvironment& environment) {
    make_world(environment, starting_within(1s));
  });
  for (const std::size_t i : {0, 1})
    EXPECT_THAT(ends[i].error, HasSubstr("ranks 0, 3 of 4 did not come within 1 s"));
}

TEST(World, UnderTorchrunTwoProcessesOfRankZeroAreRefused) {
  const auto ends = ends_under_torchrun(2, {0, 0}, [](const LaunchEnvironment& environment) {
    make_world(environment, starting_within(2s));
  });
  EXPECT_THAT(ends[0].error + ends[1].error, HasSubstr("two processes came as rank 0"));
}

// --- the end of others --------------------------------------------------------------------------

TEST(World, ARankKilledInAnOperationIsNamedByAll) {
  for (const std::int64_t victim : {0, 1, 2}) {
    const auto ends = ends_of_ranks({3, 1}, [&](const World& world) {
      if (world.rank() != victim) add_up_for_ever(world.all());
      std::thread killer([] {
        std::this_thread::sleep_for(300ms);
        die();
      });
      add_up_for_ever(world.all());
    });
    EXPECT_EQ(ends[victim].exit_code, kKilled);
    expect_all_others_name(ends, victim, 5);
  }
}

TEST(World, ARankKilledInAReduceScatterIsNamedByAll) {
  const auto ends = ends_of_ranks({1, 3}, [](const World& world) {
    const at::Tensor whole = at::full({3'000'000}, 1.F), part = at::empty({1'000'000});
    for (int i = 0;; ++i) {
      Pending pending = world.shards().reduce_scatter(part, whole, Reduction::kSum);
      if (i == 3 && world.rank() == 1) die();
      pending.wait();
    }
  });
  expect_all_others_name(ends, 1, 5);
}

TEST(World, ARankKilledWhileOthersComputeEndsThem) {
  for (const std::int64_t victim : {0, 1}) {
    const auto ends = ends_of_ranks({2, 1}, [&](const World& world) {
      if (world.rank() == victim) die();
      std::this_thread::sleep_for(50s);
    });
    expect_all_others_name(ends, victim, 10);
    EXPECT_THAT(ends[1 - victim].output, HasSubstr("ERROR")) << "nobody else can have said it";
  }
}

TEST(World, ARankKilledAtTheStartIsNamedByThoseThatWait) {
  const ReservedPort port;
  auto environments = local_environments(4, port.number());
  environments.pop_back();  // rank 3 does not come, so that the others wait
  const auto ends = ends_of_processes(environments, [](const LaunchEnvironment& environment) {
    if (environment.rank == 2)
      std::thread([] {
        std::this_thread::sleep_for(500ms);
        die();
      }).detach();
    make_world(environment, starting_within(30s));
  });
  expect_all_others_name(ends, 2, 4);
}

TEST(World, ARankZeroKilledAtTheStartIsNamedByThoseThatWait) {
  const auto ends = ends_under_torchrun(3, {0, 1}, [](const LaunchEnvironment& environment) {
    if (environment.rank == 0)
      std::thread([] {
        std::this_thread::sleep_for(500ms);
        die();
      }).detach();
    make_world(environment, starting_within(30s));
  });
  EXPECT_THAT(ends[1].error, HasSubstr("rank 0 is gone"));
}

/// A process beside the ranks that stops some of them for a while.
void pause_for(const std::vector<std::string>& pids, std::chrono::milliseconds pause) {
  if (::fork() != 0) return;
  for (const std::string& pid : pids) ::kill(std::stoi(pid), SIGSTOP);
  ::usleep(static_cast<useconds_t>(std::chrono::microseconds(pause).count()));
  for (const std::string& pid : pids) ::kill(std::stoi(pid), SIGCONT);
  ::_exit(0);
}

TEST(World, AFrozenRankIsGivenUpAfterTheLimit) {
  const auto ends = ends_of_ranks(
      {3, 1},
      [](const World& world) {
        const auto pids = world.all().all_gather_text(std::to_string(::getpid()));
        if (world.rank() == 2) pause_for({pids[1]}, 7s);
        add_up_for_ever(world.all());
      },
      silent_for(2s));
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 1) << describe(ends);
  // The frozen one too, when it awakes.
  for (const RankEnd& end : ends)
    EXPECT_THAT(words_of(end), AllOf(HasSubstr("rank 1 ("), HasSubstr("has not answered for 2 s")))
        << describe(ends);
}

TEST(World, AShortPauseOfARankIsNoReasonToEnd) {
  run_ranks(2, [](const World& world) {
    const auto pids = world.all().all_gather_text(std::to_string(::getpid()));
    if (world.rank() == 0) pause_for({pids[1]}, 1500ms);
    std::this_thread::sleep_for(300ms);
    world.all().barrier();
  });
}

TEST(World, APauseOfTheWholeMachineIsNoReasonToEnd) {
  const auto ends = ends_of_ranks(
      {3, 1},
      [](const World& world) {
        const auto pids = world.all().all_gather_text(std::to_string(::getpid()));
        if (world.rank() == 0) pause_for(pids, 3500ms);
        const auto end = std::chrono::steady_clock::now() + 4s;
        while (true) {
          std::this_thread::sleep_for(20ms);
          world.all().barrier();
          // All leave the loop in the same round.
          if (world.all().broadcast_text(std::chrono::steady_clock::now() < end ? "on" : "off") ==
              "off")
            break;
        }
      },
      silent_for(2s));
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << describe(ends);
}

TEST(World, TheOthersWaitForRankZerosResultWithoutATimeout) {
  WorldOptions options;
  options.operation_timeout = 1s;
  const auto ends = ends_of_ranks(
      {3, 1},
      [](const World& world) {
        const auto once = world.from_main([] {
          std::this_thread::sleep_for(2500ms);
          return std::string("downloaded");
        });
        EXPECT_EQ(once, "downloaded");
        EXPECT_EQ(world.from_main([] { return std::string(); }), "");
      },
      options);
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << describe(ends);
}

TEST(World, AFailureOfRankZeroEndsTheWaitForItsResult) {
  const auto ends = ends_of_ranks({3, 1}, [](const World& world) {
    world.from_main([]() -> std::string { fail("the server is gone"); });
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 1) << describe(ends);
  for (const std::size_t other : {1, 2})
    EXPECT_THAT(words_of(ends[other]),
                AllOf(HasSubstr("rank 0 "), HasSubstr("failed: the server is gone")))
        << describe(ends);
}

TEST(World, ARanksFailureIsWhatTheOthersReport) {
  for (const std::int64_t failing : {0, 2}) {
    const auto ends = ends_of_ranks({3, 1}, [&](const World& world) {
      world.all().barrier();
      if (world.rank() == failing) fail("no space\nleft on the disk");
      add_up_for_ever(world.all());
    });
    for (const RankEnd& end : ends) {
      EXPECT_EQ(end.exit_code, 1);
      if (end.rank != failing) {
        EXPECT_THAT(end.error, AllOf(ContainsRegex(fmt::format("rank {} (\\([^)]*\\) )?failed: no "
                                                               "space left on the disk",
                                                               failing)),
                                     HasSubstr("all_reduce")));
      }
      EXPECT_THAT(end.seconds, Lt(5)) << describe(ends);
    }
  }
}

TEST(World, AFailureThatNobodyReportsIsStillOne) {
  const ReservedPort port;
  const auto ends = ends_of_processes(local_environments(2, port.number()),
                                      [](const LaunchEnvironment& environment) {
                                        const World world = make_world(environment);
                                        if (environment.rank == 1) throw std::bad_alloc();
                                        add_up_for_ever(world.all());
                                      });
  EXPECT_THAT(ends[0].error, HasSubstr("failed: an error that its own log names"));
}

TEST(World, ARankThatEndsRegularlyIsNotMissed) {
  for (const std::int64_t early : {0, 1}) {
    const auto ends = ends_of_ranks({3, 1}, [&](const World& world) {
      if (world.rank() == early) return;
      std::this_thread::sleep_for(1200ms);
    });
    for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << describe(ends);
  }
}

TEST(World, AnOperationWithARankThatHasEndedSaysSo) {
  const auto ends = ends_of_ranks({3, 1}, [](const World& world) {
    if (world.rank() != 2) add_up_for_ever(world.all());
  });
  // The two fail one after the other; the second may hear of the first.
  EXPECT_THAT(ends[0].error + ends[1].error,
              HasSubstr("all_reduce failed, and rank 2 of 3 had already ended"));
  for (const RankEnd& end : ends) EXPECT_THAT(end.seconds, Lt(8));
}

TEST(World, AnOperationThatOthersDoNotJoinEndsAtItsTimeout) {
  WorldOptions options;
  options.operation_timeout = 1s;
  const auto ends = ends_of_ranks(
      {2, 1},
      [](const World& world) {
        if (world.rank() == 0) std::this_thread::sleep_for(4s);
        world.all().barrier();
      },
      options);
  EXPECT_THAT(ends[1].error, HasSubstr("barrier failed, though all 2 ranks are alive: "));
  EXPECT_THAT(ends[1].error, AnyOf(HasSubstr("imed out"), HasSubstr("imeout")));
}

// --- several machines ---------------------------------------------------------------------------

/// Two network namespaces with an address each, joined by a cable.
class TwoMachines {
 public:
  TwoMachines() {
    const std::string id = std::to_string(::getpid());
    a_ = "lerobot-a-" + id, b_ = "lerobot-b-" + id;
    const std::string cable_a = "la" + id, cable_b = "lb" + id;
    is_there_ = run("ip netns add " + a_) && run("ip netns add " + b_) &&
                run("ip link add " + cable_a + " type veth peer name " + cable_b) &&
                run("ip link set " + cable_a + " netns " + a_) &&
                run("ip link set " + cable_b + " netns " + b_) &&
                run("ip -n " + a_ + " addr add 10.77.0.1/24 dev " + cable_a) &&
                run("ip -n " + b_ + " addr add 10.77.0.2/24 dev " + cable_b);
    for (const std::string& name : {a_, b_}) run("ip -n " + name + " link set lo up");
    is_there_ = is_there_ && run("ip -n " + a_ + " link set " + cable_a + " up") &&
                run("ip -n " + b_ + " link set " + cable_b + " up");
    cable_ = cable_a;
  }
  TwoMachines(const TwoMachines&) = delete;
  TwoMachines& operator=(const TwoMachines&) = delete;
  ~TwoMachines() {
    for (const std::string& name : {a_, b_}) run("ip netns del " + name);
  }
  bool are_there() const { return is_there_; }
  /// Moves this process to one of them.
  void enter(int machine) const {
    const UniqueFd space(::open(("/run/netns/" + (machine == 0 ? a_ : b_)).c_str(), O_RDONLY));
    if (space.get() < 0 || ::setns(space.get(), CLONE_NEWNET) != 0) fail_system(errno, "setns");
  }
  void cut_cable() const { run("ip -n " + a_ + " link set " + cable_ + " down"); }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  std::string a_, b_, cable_;
  bool is_there_ = false;
};

std::vector<LaunchEnvironment> on_two_machines(std::int64_t ranks_each) {
  std::vector<LaunchEnvironment> environments = local_environments(2 * ranks_each, 29'511);
  for (LaunchEnvironment& environment : environments) {
    environment.local_world_size = ranks_each;
    environment.local_rank = environment.rank % ranks_each;
    environment.master_addr = "10.77.0.1";
  }
  return environments;
}

TEST(World, RanksOnTwoMachinesMeetAtTheirOwnAddresses) {
  const TwoMachines machines;
  if (!machines.are_there()) GTEST_SKIP() << "ip netns does not work here (it needs root)";
  const auto ends =
      ends_of_processes(on_two_machines(2), [&](const LaunchEnvironment& environment) {
        machines.enter(environment.rank < 2 ? 0 : 1);
        const World world(environment, {environment.rank, 2, 2}, at::kCPU);
        const at::Tensor x = at::full({100'000}, 1.F);
        for (const Communicator* group : {&world.all(), &world.shards(), &world.replicas()})
          group->all_reduce(x, Reduction::kSum).wait();
        EXPECT_EQ(x[0].item<float>(), 16);
      });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << describe(ends);
}

TEST(World, RanksOfTheFirstMachineThatMeetAtLoopbackReachTheSecond) {
  const TwoMachines machines;
  if (!machines.are_there()) GTEST_SKIP() << "ip netns does not work here (it needs root)";
  // As where /etc/hosts gives a machine's own name the address 127.0.1.1.
  const auto ends = ends_of_processes(on_two_machines(2), [&](LaunchEnvironment environment) {
    machines.enter(environment.rank < 2 ? 0 : 1);
    if (environment.rank < 2) environment.master_addr = "127.0.0.1";
    const World world(environment, {environment.rank, 1, 4}, at::kCPU);
    EXPECT_EQ(world.all().all_gather_text("x").size(), 4U);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << describe(ends);
}

TEST(World, AMachineThatIsCutOffIsNamed) {
  const TwoMachines machines;
  if (!machines.are_there()) GTEST_SKIP() << "ip netns does not work here (it needs root)";
  const auto ends =
      ends_of_processes(on_two_machines(1), [&](const LaunchEnvironment& environment) {
        machines.enter(static_cast<int>(environment.rank));
        const World world = make_world(environment, silent_for(2s));
        world.all().barrier();
        if (environment.rank == 0) machines.cut_cable();
        add_up_for_ever(world.all());
      });
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_THAT(words_of(end), HasSubstr("has not answered for 2 s")) << describe(ends);
    EXPECT_THAT(end.seconds, Lt(15));
  }
}

// --- small things -------------------------------------------------------------------------------

TEST(World, TimeoutsComeFromTheEnvironment) {
  const WorldOptions standard = read_world_options(Environment{});
  EXPECT_EQ(standard.start_timeout, 10min);
  EXPECT_EQ(standard.operation_timeout, 30min);
  EXPECT_EQ(standard.silence_limit, 60s);
  const WorldOptions set = read_world_options(Environment{{"LEROBOT_START_TIMEOUT_S", "7"},
                                                          {"LEROBOT_OPERATION_TIMEOUT_S", "8"},
                                                          {"LEROBOT_SILENCE_LIMIT_S", "9"}});
  EXPECT_EQ(set.start_timeout, 7s);
  EXPECT_EQ(set.operation_timeout, 8s);
  EXPECT_EQ(set.silence_limit, 9s);
  for (const char* wrong : {"0", "-3", "1.5", "10s", ""})
    EXPECT_THAT(error_of([&] {
                  read_world_options(Environment{{"LEROBOT_SILENCE_LIMIT_S", wrong}});
                }),
                HasSubstr(fmt::format("LEROBOT_SILENCE_LIMIT_S: expected whole seconds from 1 to "
                                      "31536000, found \"{}\"",
                                      wrong)));
}

TEST(World, ARankNeedsAGpuOfItsOwn) {
  EXPECT_EQ(rank_device(at::kCPU, 3), at::Device(at::kCPU));
  EXPECT_THAT(error_of([] { rank_device(at::Device(at::kCUDA), 63); }),
              ContainsRegex("rank 63 of this machine needs cuda:63, and [0-9]+ GPUs are visible"));
}

TEST(Ranks, ManyNamesAreShortened) {
  EXPECT_EQ(name_ranks({5}, 8), "rank 5 of 8");
  EXPECT_EQ(name_ranks({2, 5}, 8), "ranks 2, 5 of 8");
  std::vector<std::int64_t> many(20);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(name_ranks(many, 64),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more of 64");
}

TEST(Ranks, AFailureInARankFailsTheTestWithItsText) {
  EXPECT_NONFATAL_FAILURE(run_ranks(2,
                                    [](const World& world) {
                                      if (world.rank() == 1) fail("what rank 1 threw");
                                    }),
                          "what rank 1 threw");
  const auto ends = ends_of_ranks({2, 1}, [](const World& world) { EXPECT_EQ(world.rank(), 0); });
  EXPECT_EQ(ends[0].exit_code, 0);
  EXPECT_EQ(ends[1].exit_code, 1);
  EXPECT_THAT(ends[1].output, HasSubstr("world.rank()"));
}

}  // namespace
}  // namespace lerobot::distributed
