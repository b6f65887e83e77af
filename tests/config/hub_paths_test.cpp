// Names of repositories and Buckets on the command line.
#include "lerobot/base/error.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/hub/hub_error.h"
#include "tests/config/command_lines.h"
#include "tests/support/error_of.h"

namespace lerobot::config::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

const std::string kCheckpoint = kCheckpoints + "/state_single/000040";

/// Every repository holds the checkpoint of the fixtures.
struct FakeHub {
  std::vector<std::string> asked;

  HubFiles files() {
    const std::filesystem::path config = kCheckpoint + "/pretrained_model/train_config.json";
    return {
        .policy =
            [this](const std::string& repo, const std::optional<std::string>& revision) {
              asked.push_back(repo + "@" + revision.value_or("none"));
              return std::filesystem::path(kCheckpoint + "/pretrained_model");
            },
        .train_config =
            [this, config](const std::string& repo) {
              asked.push_back("config of " + repo);
              return config;
            },
        .checkpoint =
            [this, config](const std::string& repo, const std::optional<std::string>& output_dir) {
              asked.push_back("checkpoint of " + repo + " in " + output_dir.value_or("none"));
              return config;
            }};
  }

  TrainCommandLine parse(const Words& words) {
    return parse_train_command_line(words, policies(), files());
  }
};

TEST(HubPaths, APolicyOfTheHubIsFetchedAndKeepsItsName) {
  FakeHub hub;
  const TrainCommandLine line =
      hub.parse({"--dataset.repo_id=a/b", "--policy.path=someone/act", "--policy.dropout=0.5",
                 "--policy.pretrained_revision=v2", "--policy.push_to_hub=false"});
  EXPECT_THAT(hub.asked, ElementsAre("someone/act@v2"));
  EXPECT_EQ(act(line).chunk_size, 5);
  EXPECT_EQ(act(line).dropout, 0.5);
  EXPECT_THAT(line.config.policy->pretrained_path, Optional(std::string("someone/act")));
  EXPECT_THAT(line.config.policy->pretrained_revision, Optional(std::string("v2")));
}

TEST(HubPaths, WhatIsOnThisMachineIsNotAskedFor) {
  FakeHub hub;
  hub.parse(
      {"--dataset.repo_id=a/b", "--policy.path=" + kCheckpoint, "--policy.push_to_hub=false"});
  EXPECT_THAT(hub.asked, IsEmpty());
  EXPECT_FALSE(may_be_on_hub("./a/b"));
  EXPECT_FALSE(may_be_on_hub("/a/b"));
  EXPECT_FALSE(may_be_on_hub("a/b/c"));
  EXPECT_FALSE(may_be_on_hub("run/train_config.json"));
  EXPECT_TRUE(may_be_on_hub("someone/act"));
}

TEST(HubPaths, AResumedRunIsFetchedIntoItsOutputFolder) {
  FakeHub hub;
  const TrainCommandLine line =
      hub.parse({"--config_path=someone/run", "--resume=true", "--output_dir=elsewhere"});
  EXPECT_THAT(hub.asked, ElementsAre("checkpoint of someone/run in elsewhere"));
  EXPECT_THAT(line.config.checkpoint_path, Optional(kCheckpoint));
  hub.asked.clear();
  hub.parse({"--config_path=someone/run"});
  EXPECT_THAT(hub.asked, ElementsAre("config of someone/run"));
}

TEST(HubPaths, ThatTheHubIsOutOfReachIsNoMistakeOfTheCommandLine) {
  HubFiles files;
  files.policy = [](const std::string&, const std::optional<std::string>&) {
    throw hub::HubError(hub::HubFault::kUnreachable, 0, "no network");
    return std::filesystem::path();
  };
  const Words words = {"--dataset.repo_id=a/b", "--policy.path=someone/act"};
  EXPECT_THROW(parse_train_command_line(words, policies(), files), hub::HubError);
}

TEST(HubPaths, TheRootOfABucketIsItsName) {
  const TrainCommandLine line = parse(
      {"--dataset.root=hf://buckets/owner/data/", "--dataset.streaming=true", "--policy.type=act"});
  EXPECT_EQ(line.config.dataset.repo_id, "owner/data");
  EXPECT_EQ(line.config.dataset.repo_type, "bucket");
  EXPECT_EQ(line.config.dataset.root, std::nullopt);
}

TEST(HubPaths, ARepositoryToPublishToTurnsPublishingOn) {
  const TrainCommandLine line = parse(plain({"--policy.repo_id=me/policy"}));
  EXPECT_TRUE(line.config.policy->push_to_hub);
  EXPECT_THAT(line.notices, IsEmpty());
}

}  // namespace
}  // namespace lerobot::config::test
