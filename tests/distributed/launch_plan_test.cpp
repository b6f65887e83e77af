#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/distributed/launch/plan.h"
#include "tests/distributed/running_launch.h"

namespace lerobot::distributed {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

const Environment kPath = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}};
const Machine kMachine = {8, 4, "node0"};

LaunchPlan plan(std::vector<std::string> arguments, const Environment& environment = kPath,
                const Machine& machine = kMachine) {
  return make_launch_plan(parse_launch_options(arguments, environment), environment, machine);
}

std::string refusal(std::vector<std::string> arguments, const Environment& environment = kPath,
                    const Machine& machine = kMachine) {
  try {
    plan(std::move(arguments), environment, machine);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LaunchPlan, WorkersFollowTheMachineWhenNoNumberIsGiven) {
  EXPECT_EQ(plan({"--nproc-per-node=gpu", "true"}).local_workers, 4);
  EXPECT_EQ(plan({"--nproc-per-node=auto", "true"}).local_workers, 4);
  EXPECT_EQ(plan({"--nproc-per-node=cpu", "true"}).local_workers, 8);
  EXPECT_THAT(plan({"--nproc-per-node=auto", "true"}, kPath, {8, 0, "node0"}).notes,
              Contains("--nproc-per-node=auto: 8 workers, one for each CPU of node0"));
  EXPECT_THAT(refusal({"--nproc-per-node=gpu", "true"}, kPath, {8, 0, "node0"}),
              HasSubstr("this machine shows no CUDA device"));
}

TEST(LaunchPlan, CudaVisibleDevicesEndsAtTheFirstThatIsNone) {
  EXPECT_EQ(visible_devices("0,1", 4), 2);
  EXPECT_EQ(visible_devices("2, 3", 4), 2);
  EXPECT_EQ(visible_devices("GPU-8a56,GPU-77b1", 4), 2);
  EXPECT_EQ(visible_devices("0,-1,1", 4), 1);
  EXPECT_EQ(visible_devices("0,9,1", 4), 1);
  EXPECT_EQ(visible_devices("0,0", 4), 0);
  EXPECT_EQ(visible_devices("", 4), 0);
  EXPECT_EQ(visible_devices("-1", 4), 0);
}

TEST(LaunchPlan, AWorkersEnvironmentIsTorchruns) {
  // torchrun --nnodes=2 --node-rank=1 --nproc-per-node=2 --master-addr=10.0.0.1 --rdzv-id=job7
  const LaunchPlan two = plan({"--nnodes=2", "--node-rank=1", "--nproc-per-node=2",
                               "--master-addr=10.0.0.1", "--rdzv-id=job7", "true"});
  const Environment environment = worker_environment(two, 1, 0, two.master_port);
  const Environment expected = {{"RANK", "3"},
                                {"LOCAL_RANK", "1"},
                                {"GROUP_RANK", "1"},
                                {"ROLE_RANK", "3"},
                                {"ROLE_NAME", "default"},
                                {"WORLD_SIZE", "4"},
                                {"LOCAL_WORLD_SIZE", "2"},
                                {"GROUP_WORLD_SIZE", "2"},
                                {"ROLE_WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "10.0.0.1"},
                                {"MASTER_PORT", "29500"},
                                {"TORCHELASTIC_RUN_ID", "job7"},
                                {"TORCHELASTIC_RESTART_COUNT", "0"},
                                {"TORCHELASTIC_MAX_RESTARTS", "0"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                {"OMP_NUM_THREADS", "4"},
                                {"PATH", kPath.at("PATH")}};
  EXPECT_EQ(environment, expected);
}

TEST(LaunchPlan, WorkersShareTheCpusUnlessTheUserHasChosen) {
  EXPECT_EQ(plan({"--nproc-per-node=3", "true"}).environment.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(plan({"--nproc-per-node=16", "true"}).environment.at("OMP_NUM_THREADS"), "1");
  EXPECT_FALSE(plan({"true"}).environment.contains("OMP_NUM_THREADS"));
  Environment chosen = kPath;
  chosen["OMP_NUM_THREADS"] = "7";
  EXPECT_EQ(plan({"--nproc-per-node=2", "true"}, chosen).environment.at("OMP_NUM_THREADS"), "7");
}

TEST(LaunchPlan, Rank0ListensWhereTheEndpointSays) {
  const auto place = [](std::vector<std::string> arguments) {
    arguments.emplace_back("true");
    const LaunchPlan made = plan(std::move(arguments));
    return fmt::format("{} {}", made.master_addr, made.master_port);
  };
  EXPECT_EQ(place({}), "127.0.0.1 29500");
  EXPECT_EQ(place({"--rdzv-endpoint=node7"}), "node7 29400");
  EXPECT_EQ(place({"--rdzv-endpoint=node7:1234"}), "node7 1234");
  EXPECT_EQ(place({"--rdzv-endpoint=[fe80::1]:1234"}), "fe80::1 1234");
  EXPECT_EQ(place({"--rdzv-endpoint=[fe80::1]"}), "fe80::1 29400");
  EXPECT_EQ(place({"--master-addr=[::1]", "--master-port=7"}), "::1 7");
  EXPECT_EQ(place({"--standalone", "--rdzv-endpoint=node7:1234"}), "127.0.0.1 0");
  EXPECT_EQ(place({"--rdzv-endpoint=localhost:0"}), "localhost 0");
}

TEST(LaunchPlan, EndpointsThatAreNoneAreRefused) {
  for (const char* endpoint : {":29400", "node0:", "node0:http", "node0:70000", "::1:29400", "[::1",
                               "[::1]29400", "[::1]:", "[]:1", "node0:1x"})
    EXPECT_THAT(refusal({fmt::format("--rdzv-endpoint={}", endpoint), "true"}),
                HasSubstr(fmt::format("--rdzv-endpoint={}: ", endpoint)));
}

TEST(LaunchPlan, SeveralMachinesHaveToBeTold) {
  EXPECT_THAT(refusal({"--nnodes=2", "--rdzv-endpoint=a", "true"}),
              HasSubstr("needs --node-rank, this machine's number from 0 to 1"));
  EXPECT_THAT(refusal({"--nnodes=2", "--node-rank=2", "--rdzv-endpoint=a", "true"}),
              HasSubstr("--node-rank=2: expected 0 to 1, because --nnodes=2"));
  EXPECT_THAT(refusal({"--nnodes=2", "--node-rank=0", "true"}), HasSubstr("needs --rdzv-endpoint"));
  EXPECT_THAT(refusal({"--nnodes=2", "--node-rank=0", "--standalone", "true"}),
              HasSubstr("--standalone is for one machine"));
  EXPECT_THAT(refusal({"--nnodes=2", "--node-rank=0", "--rdzv-endpoint=a:0", "true"}),
              HasSubstr("port 0 (any free one) needs --nnodes=1"));
  EXPECT_THAT(
      refusal({"--nnodes=2", "--node-rank=0", "--rdzv-endpoint=a", "--max-restarts=1", "true"}),
      HasSubstr("--max-restarts=1 needs --nnodes=1"));
}

TEST(LaunchPlan, StandaloneJobsHaveNamesOfTheirOwn) {
  const std::string first = plan({"--standalone", "true"}).run_id;
  EXPECT_THAT(first, ::testing::MatchesRegex(
                         "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(first, plan({"--standalone", "true"}).run_id);
}

TEST(LaunchPlan, PythonStartsPythonAndNothingElse) {
  const TemporaryFolder folder;
  const std::string python = folder.file("my-python", "#!/bin/sh\n", 0755);
  const std::string script = folder.file("train.py", "", 0755);
  Environment environment = kPath;
  environment["PYTHON_EXEC"] = python;
  const LaunchPlan with = plan({script, "--a"}, environment);
  EXPECT_EQ(with.program, python);
  EXPECT_THAT(with.arguments, ElementsAre(python, "-u", script, "--a"));
  EXPECT_THAT(plan({"-m", "pkg.train", "--a"}, environment).arguments,
              ElementsAre(python, "-u", "-m", "pkg.train", "--a"));
  const LaunchPlan without = plan({"--no-python", script, "--a"}, environment);
  EXPECT_EQ(without.program, script);
  EXPECT_THAT(without.arguments, ElementsAre(script, "--a"));
  EXPECT_THAT(plan({"true", "x.py"}, environment).arguments, ElementsAre("true", "x.py"));
  EXPECT_THAT(refusal({"-m", "--no-python", "pkg"}), HasSubstr("exclude each other"));
}

TEST(LaunchPlan, ProgramsThatCannotBeStartedAreNamed) {
  const TemporaryFolder folder;
  const std::string plain = folder.file("plain", "x");
  EXPECT_THAT(refusal({plain}), HasSubstr(plain + ": not executable; allow it with chmod +x"));
  EXPECT_THAT(refusal({folder.path().string()}), HasSubstr("is a folder, expected a program"));
  EXPECT_THAT(refusal({plain + ".missing"}), HasSubstr(plain + ".missing: no such program"));
  EXPECT_THAT(refusal({plain + ".py"}), HasSubstr(plain + ".py: no such Python script"));
  EXPECT_THAT(refusal({"no-such-program-anywhere"}),
              HasSubstr("no-such-program-anywhere: no such program in PATH"));
}

TEST(LaunchPlan, ALogFolderKeepsBothStreamsUnlessToldOtherwise) {
  EXPECT_EQ(plan({"--log-dir=/tmp/x", "true"}).tee.bits(0), 3);
  const LaunchPlan redirected = plan({"--log-dir=/tmp/x", "-r", "1", "true"});
  EXPECT_EQ(redirected.tee.bits(0), 0);
  EXPECT_EQ(redirected.redirects.bits(0), 1);
  EXPECT_THAT(refusal({"-t", "3", "true"}), HasSubstr("need --log-dir"));
  EXPECT_THAT(refusal({"--log-dir=/tmp/x", "-r", "2:1", "true"}), HasSubstr("local rank 2"));
  EXPECT_THAT(refusal({"--local-ranks-filter=1", "true"}), HasSubstr("local rank 1"));
}

TEST(LaunchPlan, FreePortsAreFree) {
  const int port = free_local_port();
  EXPECT_GT(port, 1023);
  EXPECT_LT(port, 65536);
}

}  // namespace
}  // namespace lerobot::distributed
