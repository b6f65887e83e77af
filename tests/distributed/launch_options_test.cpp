#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/distributed/launch/options.h"

namespace lerobot::distributed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LaunchOptions parse(std::vector<std::string> arguments, const Environment& environment = {}) {
  return parse_launch_options(arguments, environment);
}

std::string mistakes(std::vector<std::string> arguments, const Environment& environment = {}) {
  try {
    parse(std::move(arguments), environment);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LaunchOptions, DefaultsAreTorchruns) {
  const LaunchOptions options = parse({"train.py"});
  EXPECT_EQ(options.nproc_per_node, "1");
  EXPECT_EQ(options.nnodes, 1);
  EXPECT_FALSE(options.node_rank);
  EXPECT_EQ(options.rdzv_backend, "static");
  EXPECT_EQ(options.rdzv_id, "none");
  EXPECT_EQ(options.role, "default");
  EXPECT_EQ(options.max_restarts, 0);
  EXPECT_FALSE(options.standalone || options.module || options.no_python || options.help);
  EXPECT_THAT(options.command, ElementsAre("train.py"));
}

TEST(LaunchOptions, HyphensUnderscoresEqualsSignsAndNextArgumentsMeanTheSame) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--nproc-per-node=4", "x"},
        {"--nproc_per_node=4", "x"},
        {"--nproc-per-node", "4", "x"},
        {"--nproc_per_node", "4", "x"}})
    EXPECT_EQ(parse(arguments).nproc_per_node, "4");
}

TEST(LaunchOptions, WhatFollowsTheProgramIsTheProgramsOwn) {
  EXPECT_THAT(parse({"--nnodes=1", "a.py", "--nnodes=x", "--", "-m", ""}).command,
              ElementsAre("a.py", "--nnodes=x", "--", "-m", ""));
  EXPECT_THAT(parse({"--nnodes=1", "--", "--odd-name", "1"}).command,
              ElementsAre("--odd-name", "1"));
}

TEST(LaunchOptions, EveryOptionOfSeveralMachinesIsRead) {
  const LaunchOptions options = parse(
      {"--nnodes=2:2", "--node_rank", "1", "--rdzv-endpoint=node0:29400", "--rdzv-backend=c10d",
       "--rdzv-id=job7", "--master_addr=10.0.0.1", "--master_port=1234", "--role=trainer", "x"});
  EXPECT_EQ(options.nnodes, 2);
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_EQ(options.rdzv_endpoint, "node0:29400");
  EXPECT_EQ(options.rdzv_backend, "c10d");
  EXPECT_EQ(options.rdzv_id, "job7");
  EXPECT_EQ(options.master_addr, "10.0.0.1");
  EXPECT_EQ(options.master_port, 1234);
  EXPECT_EQ(options.role, "trainer");
}

TEST(LaunchOptions, StreamsAreChosenForAllOrByLocalRank) {
  const LaunchOptions all = parse({"-r", "3", "-t1", "x"});
  EXPECT_EQ(all.redirects.bits(0), 3);
  EXPECT_EQ(all.tee.bits(7), 1);
  const LaunchOptions some = parse({"--redirects=0:3,2:1", "--local-ranks-filter=0,2", "x"});
  EXPECT_EQ(some.redirects.bits(0), 3);
  EXPECT_EQ(some.redirects.bits(1), 0);
  EXPECT_EQ(some.redirects.bits(2), 1);
  EXPECT_THAT(some.local_ranks_filter, ElementsAre(0, 2));
}

TEST(LaunchOptions, TheEnvironmentStandsInForOptionsThatAreNotGiven) {
  const Environment environment = {{"PET_NNODES", "3"},
                                   {"PET_NODE_RANK", "2"},
                                   {"PET_STANDALONE", "0"},
                                   {"PET_NO_PYTHON", "1"},
                                   {"PET_RDZV_CONF", ""}};
  const LaunchOptions options = parse({"--node-rank=1", "x"}, environment);
  EXPECT_EQ(options.nnodes, 3);
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_FALSE(options.standalone);
  EXPECT_TRUE(options.no_python);
  EXPECT_THAT(mistakes({"x"}, {{"PET_NNODES", "many"}}), HasSubstr("PET_NNODES=many: expected"));
  EXPECT_THAT(mistakes({"x"}, {{"PET_RDZV_CONF", "timeout=3"}}),
              HasSubstr("PET_RDZV_CONF=timeout=3: there is no rendezvous"));
}

TEST(LaunchOptions, AllMistakesAreListedAtOnce) {
  const std::string text = mistakes({"--nproc-per-nod=2", "--max-restarts=-1", "--standalone=yes",
                                     "--master-port=70000", "--rdzv-id=", "-q"});
  EXPECT_THAT(text, HasSubstr("--nproc-per-nod=2: unknown option; did you mean --nproc-per-node?"));
  EXPECT_THAT(text, HasSubstr("--max-restarts=-1: expected a whole number from 0"));
  EXPECT_THAT(text, HasSubstr("--standalone=yes: takes no value"));
  EXPECT_THAT(text, HasSubstr("--master-port=70000: expected a whole number from 0 to 65535"));
  EXPECT_THAT(text, HasSubstr("--rdzv-id: is empty"));
  EXPECT_THAT(text, HasSubstr("-q: unknown option"));
  EXPECT_THAT(text, HasSubstr("the program to start is missing"));
}

TEST(LaunchOptions, ValuesThatMeanNothingAreRefused) {
  EXPECT_THAT(mistakes({"--nproc-per-node=0", "x"}), HasSubstr("from 1 to"));
  EXPECT_THAT(mistakes({"--nproc-per-node=xpu", "x"}), HasSubstr("a number, auto, cpu or gpu"));
  EXPECT_THAT(mistakes({"--nnodes=1:4", "x"}), HasSubstr("changes during the run"));
  EXPECT_THAT(mistakes({"--nnodes=0", "x"}), HasSubstr("from 1 to"));
  EXPECT_THAT(mistakes({"--rdzv-backend=etcd", "x"}), HasSubstr("expected static or c10d"));
  EXPECT_THAT(mistakes({"--redirects=4", "x"}), HasSubstr("expected 0, 1, 2 or 3"));
  EXPECT_THAT(mistakes({"--tee=0:1,2", "x"}), HasSubstr("expected 0, 1, 2 or 3"));
  EXPECT_THAT(mistakes({"--local-ranks-filter=0,", "x"}), HasSubstr("whole number"));
  EXPECT_THAT(mistakes({"--shutdown-grace-s=nan", "x"}), HasSubstr("seconds, at least 0"));
  EXPECT_THAT(mistakes({"--monitor-interval=-1", "x"}), HasSubstr("seconds, at least 0"));
  EXPECT_THAT(mistakes({"--nnodes"}), HasSubstr("--nnodes: needs a value"));
}

TEST(LaunchOptions, OptionsOfTorchrunThatAreNotHereSayWhy) {
  EXPECT_THAT(mistakes({"--rdzv_conf=timeout=3", "x"}), HasSubstr("no rendezvous service"));
  EXPECT_THAT(mistakes({"--numa-binding=node", "x"}), HasSubstr("numactl"));
  EXPECT_THAT(mistakes({"--run-path", "x"}), HasSubstr("no Python interpreter"));
}

TEST(LaunchOptions, HelpNamesEveryOptionAndNeedsNoProgram) {
  EXPECT_TRUE(parse({"--help"}).help);
  EXPECT_TRUE(parse({"-h"}).help);
  for (const char* name :
       {"--nproc-per-node", "--nnodes", "--node-rank", "--rdzv-backend", "--rdzv-endpoint",
        "--rdzv-id", "--standalone", "--master-addr", "--master-port", "--max-restarts",
        "--shutdown-grace-s", "--monitor-interval", "--role", "--log-dir", "--redirects", "--tee",
        "--local-ranks-filter", "--module", "--no-python"})
    EXPECT_THAT(kLaunchHelp, HasSubstr(name));
}

}  // namespace
}  // namespace lerobot::distributed
