#include "lerobot/distributed/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace lerobot::distributed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What torchrun gives worker 3 of 4 on the second of two machines.
const Environment kTorchrun = {{"RANK", "3"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "29511"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

/// What srun gives task 5 of 7: four on node003, three on node004.
const Environment kSrun = {
    {"SLURM_JOB_ID", "812345"},      {"SLURM_STEP_ID", "0"},
    {"SLURM_NTASKS", "7"},           {"SLURM_PROCID", "5"},
    {"SLURM_LOCALID", "1"},          {"SLURM_NODEID", "1"},
    {"SLURM_TASKS_PER_NODE", "4,3"}, {"SLURM_STEP_NODELIST", "node[003-004]"}};

const Environment kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"PMIX_NAMESPACE", "prterun-host-4711@1"}};

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

std::string refusal(const Environment& environment) {
  return error_of([&] { read_launch_environment(environment); });
}

TEST(LaunchEnvironment, TorchrunsVariablesAreRead) {
  const auto launch = read_launch_environment(kTorchrun);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->world_size, 4);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_world_size, 2);
  EXPECT_EQ(launch->master_addr, "10.0.0.1");
  EXPECT_EQ(launch->master_port, 29511);
  EXPECT_TRUE(launch->launcher_serves_store);
  EXPECT_EQ(launch->restart_count, 2);
}

TEST(LaunchEnvironment, RankZeroServesTheStoreUnderOurOwnLauncher) {
  const auto launch =
      read_launch_environment(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}));
  EXPECT_FALSE(launch->launcher_serves_store);
}

TEST(LaunchEnvironment, AProcessStartedAloneOrAsTheOnlyOneHasNoLauncher) {
  EXPECT_FALSE(read_launch_environment(Environment{{"PATH", "/bin"}}));
  // People export these for srun; alone they mean nothing.
  EXPECT_FALSE(
      read_launch_environment(Environment{{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}));
  EXPECT_FALSE(read_launch_environment(
      with(kTorchrun,
           {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}})));
}

TEST(LaunchEnvironment, AHalfSetGroupIsRefusedByName) {
  EXPECT_THAT(refusal(without(without(kTorchrun, "LOCAL_RANK"), "MASTER_PORT")),
              AllOf(StartsWith("torchrun's variables are set only in part: LOCAL_RANK, MASTER_PORT "
                               "are missing beside RANK, WORLD_SIZE"),
                    HasSubstr("unset the ones that are left over")));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}}), HasSubstr("RANK, LOCAL_RANK"));
  EXPECT_THAT(refusal(without(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE is missing"));
  EXPECT_THAT(refusal(without(kSrun, "SLURM_LOCALID")), HasSubstr("SLURM_LOCALID is missing"));
  EXPECT_THAT(refusal(without(kSrun, "SLURM_TASKS_PER_NODE")),
              HasSubstr("SLURM_STEP_TASKS_PER_NODE"));
  EXPECT_THAT(refusal(without(kSrun, "SLURM_STEP_NODELIST")), HasSubstr("SLURM_STEP_NODELIST"));
  EXPECT_THAT(refusal(without(kSrun, "SLURM_JOB_ID")),
              HasSubstr("neither SLURM_JOB_ID nor MASTER_PORT"));
}

TEST(LaunchEnvironment, ValuesThatCannotBeAreRefusedByName) {
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "three"}})),
              HasSubstr("RANK: expected an integer, found \"three\""));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", ""}})), HasSubstr("RANK: expected an integer"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK: expected 0 to"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "4"}})),
              HasSubstr("RANK=4 and WORLD_SIZE=4 contradict each other: ranks are 0 to 3"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_RANK", "2"}})),
              HasSubstr("LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2 contradict each other"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}})),
              HasSubstr("8 ranks on this machine are more than the 4"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", "65536"}})),
              HasSubstr("MASTER_PORT: expected 1 to 65535, found 65536"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_ADDR", ""}})), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(refusal(with(kSrun, {{"SLURM_TASKS_PER_NODE", "4"}})),
              HasSubstr("SLURM_TASKS_PER_NODE=\"4\" does not say how many tasks node 1 has"));
  EXPECT_THAT(refusal(with(kSrun, {{"SLURM_LOCALID", "3"}})),
              HasSubstr("SLURM_LOCALID=3 and SLURM_TASKS_PER_NODE=4,3 contradict each other"));
}

TEST(LaunchEnvironment, MpirunsRanksOnOneMachineNeedNoAddress) {
  const auto launch = read_launch_environment(kMpirun);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->rank, 1);
  EXPECT_EQ(launch->world_size, 2);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->master_addr, "127.0.0.1");
  EXPECT_FALSE(launch->launcher_serves_store);
  // The same port in every process of the job, another one in the next job.
  EXPECT_EQ(launch->master_port,
            read_launch_environment(with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "0"}}))->master_port);
  EXPECT_NE(launch->master_port,
            read_launch_environment(with(kMpirun, {{"PMIX_NAMESPACE", "prterun-host-4712@1"}}))
                ->master_port);
  EXPECT_EQ(read_launch_environment(with(kMpirun, {{"MASTER_PORT", "1234"}}))->master_port, 1234);
}

TEST(LaunchEnvironment, MpirunsRanksOnSeveralMachinesNeedAnAddress) {
  const Environment two =
      with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_THAT(refusal(two), HasSubstr("-x MASTER_ADDR=HOST"));
  EXPECT_EQ(read_launch_environment(with(two, {{"MASTER_ADDR", "node1"}}))->master_addr, "node1");
}

TEST(LaunchEnvironment, ATaskOfASlurmStepIsARank) {
  const auto launch = read_launch_environment(kSrun);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->world_size, 7);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_world_size, 3);
  EXPECT_EQ(launch->master_addr, "node003");
  EXPECT_GE(launch->master_port, 20000);
  EXPECT_LT(launch->master_port, 30000);
  EXPECT_NE(launch->master_port,
            read_launch_environment(with(kSrun, {{"SLURM_STEP_ID", "1"}}))->master_port);
  EXPECT_EQ(
      read_launch_environment(with(kSrun, {{"SLURM_TASKS_PER_NODE", "3(x2),1"}}))->local_world_size,
      3);
  const auto chosen =
      read_launch_environment(with(kSrun, {{"MASTER_ADDR", "ib-node003"}, {"MASTER_PORT", "777"}}));
  EXPECT_EQ(chosen->master_addr, "ib-node003");
  EXPECT_EQ(chosen->master_port, 777);
}

TEST(LaunchEnvironment, SlurmOutsideAStepOfSeveralTasksMeansNothing) {
  // A batch script, salloc's shell, and a step of one task within a job of several.
  EXPECT_FALSE(read_launch_environment(without(kSrun, "SLURM_STEP_ID")));
  EXPECT_FALSE(read_launch_environment(with(kSrun, {{"SLURM_NTASKS", "1"}})));
  EXPECT_FALSE(read_launch_environment(with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}})));
}

TEST(LaunchEnvironment, TorchrunInsideASlurmStepIsTorchrun) {
  EXPECT_EQ(read_launch_environment(with(kSrun, kTorchrun))->rank, 3);
}

TEST(LaunchEnvironment, TheFirstNodeOfASlurmListIsFound) {
  EXPECT_EQ(first_slurm_node("node1"), "node1");
  EXPECT_EQ(first_slurm_node("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_node("node[003-008,011]"), "node003");
  EXPECT_EQ(first_slurm_node("node[7,9-11],login1"), "node7");
  EXPECT_EQ(first_slurm_node("rack[1-2]-node[08-09].cluster,x"), "rack1-node08.cluster");
  EXPECT_THAT(error_of([] { first_slurm_node("node[3-"); }), HasSubstr("\"node[3-\""));
  EXPECT_THAT(error_of([] { first_slurm_node(""); }), HasSubstr("MASTER_ADDR"));
}

std::string guarded(const Environment& environment) {
  return error_of([&] { refuse_accelerate_environment(environment); });
}

TEST(AccelerateEnvironment, EveryVariableThatConfiguresAnEngineIsRefusedByName) {
  for (const char* name :
       {"ACCELERATE_USE_FSDP", "ACCELERATE_USE_PARALLELISM_CONFIG",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "FSDP_VERSION", "FSDP_OFFLOAD_PARAMS",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE", "ACCELERATE_DYNAMO_MODE"}) {
    const Environment environment = {{"PATH", "/bin"}, {name, "1"}};
    EXPECT_THAT(guarded(environment),
                AllOf(HasSubstr(std::string(name) + "=1"), HasSubstr("--parallelism.*"),
                      HasSubstr("--accelerator.*"), HasSubstr("LEROBOT_ALLOW_ACCELERATE_ENV=1")));
    EXPECT_EQ(guarded(with(environment, {{"LEROBOT_ALLOW_ACCELERATE_ENV", "1"}})), "no error");
    EXPECT_NE(guarded(with(environment, {{"LEROBOT_ALLOW_ACCELERATE_ENV", ""}})), "no error");
  }
}

TEST(AccelerateEnvironment, APlainAccelerateLaunchPasses) {
  // What accelerate 1.15.0 sets for `accelerate launch --num_processes=2`.
  const Environment plain = {{"ACCELERATE_USE_CPU", "False"},
                             {"ACCELERATE_MIXED_PRECISION", "no"},
                             {"ACCELERATE_DYNAMO_BACKEND", "NO"},
                             {"ACCELERATE_DYNAMO_MODE", "default"},
                             {"ACCELERATE_DYNAMO_USE_FULLGRAPH", "False"},
                             {"ACCELERATE_DYNAMO_USE_DYNAMIC", "False"},
                             {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "False"}};
  EXPECT_EQ(guarded(plain), "no error");
  EXPECT_THAT(guarded(with(plain, {{"ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"}})),
              HasSubstr("ACCELERATE_DYNAMO_BACKEND=INDUCTOR"));
}

}  // namespace
}  // namespace lerobot::distributed
