// What lerobot-launch shows and keeps of real processes.
#include <pty.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/distributed/running_launch.h"

namespace lerobot::distributed {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.end(), {"/bin/sh", "-c", script});
  return options;
}

TEST(LaunchOutput, EveryLineCarriesItsRankAndKeepsItsStream) {
  RunningLaunch launch(shell({"--nproc-per-node=2"}, "echo to out $RANK; echo to err $RANK >&2"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_THAT(lines_of(launch.out()),
              ::testing::UnorderedElementsAre("[rank 0] to out 0", "[rank 1] to out 1"));
  EXPECT_THAT(lines_of_rank(launch.err(), 0), ElementsAre("to err 0"));
  EXPECT_THAT(lines_of_rank(launch.err(), 1), ElementsAre("to err 1"));
}

TEST(LaunchOutput, HundredThousandLinesOfFourWorkersStayWholeAndInOrder) {
  RunningLaunch launch(shell({"--nproc-per-node=4"}, "seq -f \"line %.0f of rank $RANK\" 25000"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_EQ(lines_of(launch.out()).size(), 100'000u);
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<std::string> lines = lines_of_rank(launch.out(), rank);
    ASSERT_EQ(lines.size(), 25'000u);
    for (std::size_t i = 0; i < lines.size(); ++i)
      ASSERT_EQ(lines[i], fmt::format("line {} of rank {}", i + 1, rank));
  }
}

TEST(LaunchOutput, LinesWrittenInPiecesDoNotMix) {
  RunningLaunch launch(shell({"--nproc-per-node=3"},
                             "for i in 1 2 3 4 5; do printf 'begin '; sleep 0.01; "
                             "printf 'middle '; sleep 0.01; printf \"end $i\\n\"; done"));
  EXPECT_EQ(launch.wait(), 0);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(lines_of_rank(launch.out(), rank),
                ElementsAre("begin middle end 1", "begin middle end 2", "begin middle end 3",
                            "begin middle end 4", "begin middle end 5"));
}

TEST(LaunchOutput, ALastLineWithoutEndIsShown) {
  RunningLaunch launch(shell({}, "printf 'no end'"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_EQ(launch.out(), "[rank 0] no end\n");
}

TEST(LaunchOutput, AProgressBarInALogIsShownNowAndThenAndAtItsEnd) {
  RunningLaunch launch(shell({},
                             "for i in 1 2 3 4 5 6 7 8 9; do printf \"\\r${i}0%%\" >&2; "
                             "sleep 0.02; done; printf '\\r100%%\\n' >&2"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_EQ(launch.err(), "[rank 0] 10%\n[rank 0] 100%\n");
}

TEST(LaunchOutput, OnATerminalAProgressBarStandsBelowTheLines) {
  int terminal = -1, program_side = -1;
  winsize size{24, 60, 0, 0};
  ASSERT_EQ(::openpty(&terminal, &program_side, nullptr, nullptr, &size), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(program_side, STDOUT_FILENO);
    ::dup2(program_side, STDERR_FILENO);
    ::close(program_side);
    ::close(terminal);
    ::unsetenv("NO_COLOR");
    const std::string script =
        "printf '\\r50%% of a bar'; sleep 0.2; echo a line >&2; sleep 0.2; printf '\\r100%%\\n'";
    ::execl(launch_path().c_str(), "lerobot-launch", "sh", "-c", script.c_str(), nullptr);
    ::_exit(126);
  }
  ::close(program_side);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(terminal, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const std::string mark = "\x1b[36m[rank 0]\x1b[0m ", erase = "\r\x1b[K";
  // A line of the same rank replaces its bar; the terminal adds the carriage returns.
  EXPECT_EQ(text, mark + "50% of a bar" + erase + mark + "a line\r\n" + mark + "100%\r\n");
}

TEST(LaunchOutput, OnlyTheChosenLocalRanksAreShown) {
  RunningLaunch launch(
      shell({"--nproc-per-node=3", "--local-ranks-filter=0,2"}, "echo from $RANK"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_THAT(lines_of(launch.out()),
              ::testing::UnorderedElementsAre("[rank 0] from 0", "[rank 2] from 2"));
}

TEST(LaunchOutput, WorkersReadNothing) {
  RunningLaunch launch(shell({}, "cat; readlink /proc/self/fd/0"));
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_EQ(launch.out(), "[rank 0] /dev/null\n");
}

TEST(LaunchOutput, AWorkerThatClosesItsOutputGoesOn) {
  const TemporaryFolder folder;
  const std::string done = folder.path() / "done";
  RunningLaunch launch(
      shell({}, "echo before; exec >&- 2>&-; sleep 0.2; : > '" + done + "'; exit 5"));
  EXPECT_EQ(launch.wait(), 5);
  EXPECT_TRUE(fs::exists(done));
  EXPECT_THAT(launch.err(), AllOf(HasSubstr("exit code 5"), HasSubstr("  | before")));
}

TEST(LaunchOutput, AReaderThatGoesAwayDoesNotEndTheJob) {
  const TemporaryFolder folder;
  const std::string done = folder.path() / "done";
  const std::string command =
      fmt::format("'{}' sh -c 'seq 100000; : > {}' | head -n 1", launch_path(), done);
  EXPECT_EQ(std::system((command + " > /dev/null").c_str()), 0);
  EXPECT_TRUE(RunningLaunch::soon([&] { return fs::exists(done); }));
}

TEST(LaunchOutput, AReaderThatDoesNotReadDoesNotKeepSignalsAway) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::execl(launch_path().c_str(), "lerobot-launch", "seq", "100000000", nullptr);
    ::_exit(126);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(child, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(child, SIGTERM);  // nobody will read what is left
  int status = 0;
  EXPECT_TRUE(RunningLaunch::soon([&] { return ::waitpid(child, &status, WNOHANG) == child; }));
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(WEXITSTATUS(status), 143);
}

TEST(LaunchOutput, WaitingCostsNoTime) {
  // Half a second for a worker, then half a second for a reader that does not read.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::execl(launch_path().c_str(), "lerobot-launch", "sh", "-c", "sleep 0.5; seq 50000", nullptr);
    ::_exit(126);
  }
  ::close(ends[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  std::array<char, 1 << 16> buffer;
  while (::read(ends[0], buffer.data(), buffer.size()) > 0) continue;
  ::close(ends[0]);
  int status = 0;
  rusage used{};
  ASSERT_EQ(::wait4(child, &status, 0, &used), child);
  EXPECT_EQ(status, 0);
  // Its own and its workers' together.
  EXPECT_LT(used.ru_utime.tv_sec + used.ru_stime.tv_sec, 1);
  EXPECT_LT(used.ru_utime.tv_usec + used.ru_stime.tv_usec, 250'000);
}

TEST(LaunchOutput, OutputIsKeptUnchangedInTorchrunsTree) {
  const TemporaryFolder folder;
  RunningLaunch launch(shell(
      {"--nproc-per-node=2", "--rdzv-id=job7", "--log-dir=" + (folder.path() / "logs").string()},
      "printf \"\\r50%%\\rout $RANK\\n\"; echo err $RANK >&2"));
  EXPECT_EQ(launch.wait(), 0);
  std::vector<fs::path> runs(fs::directory_iterator(folder.path() / "logs"), {});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_THAT(runs[0].filename().string(), ::testing::StartsWith("job7_"));
  EXPECT_EQ(read_text_file(runs[0] / "attempt_0/0/stdout.log"), "\r50%\rout 0\n");
  EXPECT_EQ(read_text_file(runs[0] / "attempt_0/1/stderr.log"), "err 1\n");
  EXPECT_THAT(lines_of_rank(launch.out(), 1), Contains("out 1"));
  EXPECT_THAT(launch.err(), HasSubstr("output is kept in " + runs[0].string()));
}

TEST(LaunchOutput, RedirectedStreamsAreNotShownButTheirLastLinesAre) {
  const TemporaryFolder folder;
  RunningLaunch launch(
      shell({"--nproc-per-node=2", "--log-dir=" + folder.path().string(), "--redirects=0:3,1:1"},
            "echo out $RANK; echo err $RANK >&2; sleep 0.2; exit $((RANK ? 0 : 9))"));
  EXPECT_EQ(launch.wait(), 9);
  EXPECT_THAT(launch.out(), IsEmpty());
  EXPECT_THAT(lines_of_rank(launch.err(), 0), IsEmpty());
  EXPECT_THAT(lines_of_rank(launch.err(), 1), ElementsAre("err 1"));
  EXPECT_THAT(launch.err(), AllOf(HasSubstr("  | out 0"), HasSubstr("  | err 0")));
}

TEST(LaunchOutput, AFullDiskLosesTheLogAndNotTheRun) {
  // A limit on the size of files stands for the disk; the launcher is told not to die of it.
  const TemporaryFolder folder;
  const std::string command = fmt::format(
      "trap '' XFSZ; ulimit -f 1; '{}' --log-dir={} sh -c 'seq 1000; echo the end' 2>&1 | tail -n "
      "1",
      launch_path(), folder.path().string());
  FILE* const output = ::popen(command.c_str(), "r");
  std::array<char, 256> line{};
  ASSERT_NE(std::fgets(line.data(), line.size(), output), nullptr);
  EXPECT_EQ(::pclose(output), 0);
  EXPECT_STREQ(line.data(), "[rank 0] the end\n");
}

TEST(LaunchOutput, ALogFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  const std::string file = folder.file("taken", "");
  RunningLaunch launch({"--log-dir=" + file, "true"});
  EXPECT_EQ(launch.wait(), 1);
  EXPECT_THAT(launch.err(), HasSubstr(file));
}

}  // namespace
}  // namespace lerobot::distributed
