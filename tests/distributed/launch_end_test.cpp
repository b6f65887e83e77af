// How jobs of lerobot-launch end: failures, signals, restarts, and what is left then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/distributed/running_launch.h"

namespace lerobot::distributed {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.end(), {"/bin/sh", "-c", script});
  return options;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

TEST(LaunchEnd, AllWorkersEndingWellIsSuccess) {
  RunningLaunch launch(shell({"--nproc-per-node=3"}, "exit 0"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_TRUE(launch.leaves_nothing());
}

TEST(LaunchEnd, TheFirstFailureIsNamedAndEndsTheOthers) {
  const auto begin = Clock::now();
  RunningLaunch launch(shell({"--nproc-per-node=3"},
                             "if [ $RANK = 1 ]; then sleep 0.1; echo reason >&2; exit 7; fi; "
                             "trap 'echo ended; exit 1' TERM; while :; do sleep 0.05; done"));
  EXPECT_EQ(launch.wait(), 7);
  EXPECT_LT(seconds_since(begin), 15);
  EXPECT_THAT(launch.err(),
              AllOf(ContainsRegex("rank 1 \\(pid [0-9]+\\) failed: exit code 7; ending the others"),
                    ContainsRegex("FAILED: rank 1 was the first \\(local rank 1 of [^,]+, pid "
                                  "[0-9]+\\): exit code 7 after 0\\.[0-9] s"),
                    HasSubstr("  | reason")));
  EXPECT_THAT(lines_of_rank(launch.out(), 0), ElementsAre("ended"));
  EXPECT_THAT(lines_of_rank(launch.out(), 2), ElementsAre("ended"));
  EXPECT_TRUE(launch.leaves_nothing());
}

TEST(LaunchEnd, ASignalThatEndsAWorkerIsNamed) {
  RunningLaunch launch(shell({}, "kill -SEGV $$"));
  EXPECT_EQ(launch.wait(), 128 + SIGSEGV);
  EXPECT_THAT(launch.err(), HasSubstr("signal SIGSEGV"));
}

TEST(LaunchEnd, AKilledWorkerHintsAtMemory) {
  RunningLaunch launch(shell({}, "kill -KILL $$"));
  EXPECT_EQ(launch.wait(), 137);
  EXPECT_THAT(launch.err(), HasSubstr("signal SIGKILL (out of memory?"));
}

TEST(LaunchEnd, OnlyTheLastLinesAreRepeated) {
  RunningLaunch launch(shell({}, "seq 100; exit 1"));
  EXPECT_EQ(launch.wait(), 1);
  EXPECT_THAT(launch.err(), AllOf(HasSubstr("  | 81\n"), HasSubstr("  | 100\n")));
  EXPECT_THAT(launch.err(), Not(HasSubstr("  | 80\n")));
}

TEST(LaunchEnd, AWorkerThatIgnoresSigtermIsKilledAfterTheGracePeriod) {
  const auto begin = Clock::now();
  RunningLaunch launch(
      shell({"--nproc-per-node=2", "--shutdown-grace-s=0.3"},
            "[ $RANK = 1 ] && sleep 0.2 && exit 3; trap '' TERM; sleep 1000 & wait; "
            "sleep 1000"));
  EXPECT_EQ(launch.wait(), 3);
  EXPECT_GT(seconds_since(begin), 0.45);
  EXPECT_LT(seconds_since(begin), 15);
  EXPECT_THAT(launch.err(), HasSubstr("still running 0.3 s after SIGTERM: killing"));
  EXPECT_TRUE(launch.leaves_nothing());
}

TEST(LaunchEnd, AStoppedWorkerEndsWithTheOthers) {
  RunningLaunch launch(
      shell({"--nproc-per-node=2"}, "[ $RANK = 1 ] && sleep 0.2 && exit 3; kill -STOP $$; exit 0"));
  const auto begin = Clock::now();
  EXPECT_EQ(launch.wait(), 3);
  EXPECT_LT(seconds_since(begin), 15);
}

TEST(LaunchEnd, WhatWorkersLeaveBehindIsEnded) {
  RunningLaunch launch(shell({"--nproc-per-node=2"}, "sleep 1000 & setsid sleep 1000 & exit 0"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_THAT(launch.err(), HasSubstr("the workers have left processes behind; ending them"));
  EXPECT_TRUE(launch.leaves_nothing());
}

TEST(LaunchEnd, WhatIsLeftBehindAndIgnoresSigtermIsKilled) {
  RunningLaunch launch(
      shell({"--shutdown-grace-s=0.2"},
            "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & sleep 0.2"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_TRUE(launch.leaves_nothing());
}

TEST(LaunchEnd, ChildrenOfAFailedJobAreEnded) {
  RunningLaunch launch(shell({"--nproc-per-node=2", "--shutdown-grace-s=1"},
                             "sleep 1000 & (sleep 1000 & sleep 1000) & setsid sleep 1000 & "
                             "[ $RANK = 0 ] && exit 4; wait"));
  EXPECT_EQ(launch.wait(), 4);
  EXPECT_TRUE(launch.leaves_nothing());
}

TEST(LaunchEnd, AKilledLauncherLeavesNoProcessOfItsWorkers) {
  RunningLaunch launch(shell({"--nproc-per-node=2"},
                             "trap '' TERM INT HUP; sleep 1000 & (sleep 1000 & sleep 1000) & "
                             "echo ready; wait; sleep 1000"));
  ASSERT_TRUE(launch.shows("[rank 0] ready"));
  ASSERT_TRUE(launch.shows("[rank 1] ready"));
  EXPECT_GE(launch.processes().size(), 8u);
  launch.signal(SIGKILL);
  EXPECT_EQ(launch.wait(), 137);
  EXPECT_TRUE(launch.leaves_nothing());
}

// --- Signals
// --------------------------------------------------------------------------------------

class Interrupted : public ::testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(Interrupted, ItIsPassedOnOnceAndWorkersMayTakeTheirTime) {
  const auto [name, number] = GetParam();
  RunningLaunch launch(shell({"--nproc-per-node=2", "--shutdown-grace-s=0.1"},
                             fmt::format("trap 'echo saving; sleep 0.5; echo saved; exit {}' {}; "
                                         "echo ready; while :; do sleep 0.02; done",
                                         128 + number, name)));
  ASSERT_TRUE(launch.shows("[rank 0] ready"));
  ASSERT_TRUE(launch.shows("[rank 1] ready"));
  launch.signal(number);
  EXPECT_EQ(launch.wait(), 128 + number);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(lines_of_rank(launch.out(), rank), ElementsAre("ready", "saving", "saved"));
  EXPECT_THAT(launch.err(), AllOf(HasSubstr(fmt::format("SIG{}: passed on to 2 workers", name)),
                                  Not(HasSubstr("FAILED"))));
  EXPECT_TRUE(launch.leaves_nothing());
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupted,
                         ::testing::Values(std::pair("INT", SIGINT), std::pair("TERM", SIGTERM),
                                           std::pair("HUP", SIGHUP), std::pair("QUIT", SIGQUIT)),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(LaunchSignals, ASecondOneKills) {
  RunningLaunch launch(shell({"--nproc-per-node=2"},
                             "trap 'echo no' INT TERM; echo ready; while :; do sleep 0.02; done"));
  ASSERT_TRUE(launch.shows("[rank 0] ready"));
  ASSERT_TRUE(launch.shows("[rank 1] ready"));
  launch.signal(SIGINT);
  ASSERT_TRUE(launch.shows("[rank 0] no"));
  ASSERT_TRUE(launch.shows("[rank 1] no"));
  launch.signal(SIGINT);
  EXPECT_EQ(launch.wait(), 130);
  EXPECT_THAT(launch.err(), HasSubstr("SIGINT: killing the workers"));
  EXPECT_TRUE(launch.leaves_nothing());
}

TEST(LaunchSignals, AWorkerThatFailsMeanwhileEndsTheOthers) {
  RunningLaunch launch(shell({"--nproc-per-node=2", "--shutdown-grace-s=0.2"},
                             "trap '[ $RANK = 0 ] && exit 9' INT; trap '' TERM; echo ready; "
                             "while :; do sleep 0.02; done"));
  ASSERT_TRUE(launch.shows("[rank 0] ready"));
  ASSERT_TRUE(launch.shows("[rank 1] ready"));
  launch.signal(SIGINT);
  EXPECT_EQ(launch.wait(), 130);
  EXPECT_THAT(launch.err(), HasSubstr("FAILED: rank 0 was the first"));
}

TEST(LaunchSignals, AnInterruptedJobIsNotStartedAgain) {
  RunningLaunch launch(
      shell({"--max-restarts=5"}, "trap 'exit 9' INT; echo ready; while :; do sleep 0.02; done"));
  ASSERT_TRUE(launch.shows("[rank 0] ready"));
  launch.signal(SIGINT);
  EXPECT_EQ(launch.wait(), 130);
  EXPECT_THAT(lines_of_rank(launch.out(), 0), ElementsAre("ready"));
}

TEST(LaunchSignals, SignalsOfTheSchedulerArePassedOnAndEndNothing) {
  RunningLaunch launch(shell({},
                             "trap 'echo got it; exit 0' USR1; echo ready; "
                             "while :; do sleep 0.02; done"));
  ASSERT_TRUE(launch.shows("[rank 0] ready"));
  launch.signal(SIGUSR1);
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_THAT(lines_of_rank(launch.out(), 0), ElementsAre("ready", "got it"));
}

TEST(LaunchSignals, NohupIsRespected) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGHUP, &ignore, &before);
  RunningLaunch launch(shell({}, "echo ready; sleep 0.4; echo done"));
  ::sigaction(SIGHUP, &before, nullptr);
  ASSERT_TRUE(launch.shows("[rank 0] ready"));
  launch.signal(SIGHUP);
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_THAT(lines_of_rank(launch.out(), 0), ElementsAre("ready", "done"));
}

TEST(LaunchSignals, AStoppedLauncherStopsItsWorkers) {
  RunningLaunch launch(shell({}, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"));
  ASSERT_TRUE(launch.shows("[rank 0] 3"));
  launch.signal(SIGTSTP);
  ASSERT_TRUE(RunningLaunch::soon([&] {
    int status = 0;
    return ::waitpid(launch.pid(), &status, WUNTRACED | WNOHANG) == launch.pid() &&
           WIFSTOPPED(status);
  }));
  const auto stopped = [&] {
    for (const pid_t pid : launch.processes()) {
      std::ifstream file(fmt::format("/proc/{}/stat", pid));
      const std::string stat{std::istreambuf_iterator<char>(file), {}};
      if (stat.find("(sh) T") != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(RunningLaunch::soon(stopped));
  launch.signal(SIGCONT);
  EXPECT_TRUE(RunningLaunch::soon([&] { return !stopped(); }));
  launch.signal(SIGTERM);
  EXPECT_EQ(launch.wait(), 143);
}

// --- Restarts
// -------------------------------------------------------------------------------------

TEST(LaunchRestarts, AllWorkersStartAgainWithTheirCount) {
  RunningLaunch launch(
      shell({"--nproc-per-node=2", "--max-restarts=3", "--standalone"},
            "echo start $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; sleep 0.1; "
            "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && exit 6; sleep 100"));
  EXPECT_EQ(launch.wait(), 0);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(lines_of_rank(launch.out(), rank),
                ElementsAre("start 0 of 3", "start 1 of 3", "start 2 of 3"));
  EXPECT_THAT(launch.err(), AllOf(HasSubstr("starting 2 workers again (restart 1 of 3)"),
                                  HasSubstr("starting 2 workers again (restart 2 of 3)")));
}

TEST(LaunchRestarts, TheyEnd) {
  RunningLaunch launch(shell({"--max-restarts=2"}, "echo x; exit 6"));
  EXPECT_EQ(launch.wait(), 6);
  EXPECT_THAT(lines_of_rank(launch.out(), 0), ElementsAre("x", "x", "x"));
}

// --- Starting
// -------------------------------------------------------------------------------------

TEST(LaunchStart, WrongCommandLinesExitWithTwo) {
  RunningLaunch launch({"--nproc-per-nod=2", "true"});
  EXPECT_EQ(launch.wait(), 2);
  EXPECT_THAT(launch.err(), AllOf(HasSubstr("lerobot-launch: wrong command line (see --help)\n"),
                                  HasSubstr("did you mean --nproc-per-node?")));
}

TEST(LaunchStart, HelpGoesToStandardOutput) {
  RunningLaunch launch({"--help"});
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_THAT(launch.out(), HasSubstr("usage: lerobot-launch"));
  EXPECT_EQ(launch.err(), "");
}

TEST(LaunchStart, AProgramThatTheSystemRefusesIsNamed) {
  const TemporaryFolder folder;
  const std::string text = folder.file("text", "no first line\n", 0755);
  RunningLaunch no_format({text});
  EXPECT_EQ(no_format.wait(), 1);
  EXPECT_THAT(no_format.err(),
              HasSubstr("neither a program of this machine nor a script that begins with #!"));
  const std::string script = folder.file("script", "#!/no/such/interpreter\n", 0755);
  RunningLaunch no_interpreter({script});
  EXPECT_EQ(no_interpreter.wait(), 1);
  EXPECT_THAT(no_interpreter.err(), HasSubstr("the interpreter in its first line"));
  EXPECT_TRUE(no_interpreter.leaves_nothing());
}

TEST(LaunchStart, WorkersBeginWithAFreshSignalMaskAndGroupsOfTheirOwn) {
  RunningLaunch launch(
      shell({"--nproc-per-node=2"},
            "grep SigBlk /proc/self/status; echo group $(($$ - $(ps -o pgid= -p $$)))"));
  EXPECT_EQ(launch.wait(), 0);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(lines_of_rank(launch.out(), rank),
                ElementsAre("SigBlk:\t0000000000000000", "group 0"));
}

TEST(LaunchStart, StandardStreamsMayBeClosed) {
  const std::string command = fmt::format("'{}' sh -c 'exit 3' <&- >&- 2>&-", launch_path());
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 3);
}

TEST(LaunchStart, ArgumentsArriveUnchanged) {
  const std::string script = "for a in \"$@\"; do printf '<%s>' \"$a\"; done";
  RunningLaunch launch({"--", "/bin/sh", "-c", script, "sh", "--nnodes=9", "", "a b", "--", "-m"});
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_EQ(launch.out(), "[rank 0] <--nnodes=9><><a b><--><-m>\n");
}

TEST(LaunchStart, MachinesShareTheirRanksAmongThem) {
  for (int node = 0; node < 2; ++node) {
    RunningLaunch launch(shell({"--nnodes=2", fmt::format("--node-rank={}", node),
                                "--nproc-per-node=2", "--rdzv-endpoint=node0"},
                               "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT"));
    EXPECT_EQ(launch.wait(), 0);
    for (int local = 0; local < 2; ++local)
      EXPECT_THAT(lines_of_rank(launch.out(), 2 * node + local),
                  ElementsAre(fmt::format("{} {} 4 node0:29400", 2 * node + local, local)));
  }
}

}  // namespace
}  // namespace lerobot::distributed
