#include "lerobot/config/command_line.h"

#include "lerobot/base/files.h"
#include "tests/config/command_lines.h"

namespace lerobot::config::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

TEST(CommandLine, APlainRunHasLeRobotsDefaults) {
  const TrainCommandLine line = parse(plain({}));
  const TrainConfig& config = line.config;
  EXPECT_EQ(config.dataset.repo_id, "someone/data");
  EXPECT_EQ(config.batch_size, 8);
  EXPECT_EQ(config.steps, 100000);
  EXPECT_EQ(config.seed, 1000);
  EXPECT_EQ(config.tolerance_s, 1e-4);
  EXPECT_EQ(config.policy->type(), "act");
  EXPECT_EQ(act(line).chunk_size, 100);
  EXPECT_FALSE(line.config_file);
  EXPECT_THAT(line.given, ElementsAre("dataset.repo_id", "policy.type"));
}

TEST(CommandLine, AValueFollowsAnEqualsSignOrABlank) {
  const TrainCommandLine line = parse(
      plain({"--steps", "7", "--batch_size=3", "--dataset.episodes", "[0, 2]", "--seed", "5"}));
  EXPECT_EQ(line.config.steps, 7);
  EXPECT_EQ(line.config.batch_size, 3);
  EXPECT_THAT(line.config.dataset.episodes, Optional(ElementsAre(0, 2)));
  EXPECT_EQ(line.config.seed, 5);
}

TEST(CommandLine, TheLastOfRepeatedFlagsWins) {
  EXPECT_EQ(parse(plain({"--steps=1", "--steps=2"})).config.steps, 2);
}

// What LeRobot 0.6.1 makes of the same words, or a refusal where it would turn text into something
// that nobody wrote.
TEST(CommandLine, ValuesAreReadAsLeRobotReadsThem) {
  const auto config = [](const std::string& word) { return parse(plain({word})).config; };
  EXPECT_EQ(config("--steps=100_000").steps, 100000);
  EXPECT_EQ(config("--tolerance_s=1e-3").tolerance_s, 1e-3);
  EXPECT_EQ(config("--tolerance_s=1").tolerance_s, 1.0);
  EXPECT_EQ(config("--seed=null").seed, std::nullopt);
  EXPECT_EQ(config("--seed=~").seed, std::nullopt);
  EXPECT_TRUE(config("--cudnn_deterministic=True").cudnn_deterministic);
  EXPECT_TRUE(config("--cudnn_deterministic=yes").cudnn_deterministic);
  EXPECT_FALSE(config("--save_checkpoint=off").save_checkpoint);
  EXPECT_THAT(config("--job_name=\"a b\"").job_name, Optional(std::string("a b")));
  EXPECT_THAT(config("--job_name='010'").job_name, Optional(std::string("010")));
  EXPECT_THAT(config("--job_name=010").job_name, Optional(std::string("010")));
  EXPECT_THAT(config("--job_name=true").job_name, Optional(std::string("true")));
  EXPECT_THAT(config("--job_name=a: b #c").job_name, Optional(std::string("a: b #c")));
  EXPECT_EQ(config("--job_name=null").job_name, std::nullopt);
  EXPECT_THAT(config("--policy.private=true").policy->private_, Optional(true));
  EXPECT_THAT(config("--policy.tags=[a, b]").policy->tags, Optional(ElementsAre("a", "b")));
}

TEST(CommandLine, ObjectsAreGivenAsAWhole) {
  const TrainCommandLine line = parse(plain({
      "--policy.input_features={observation.state: {type: STATE, shape: [4]}}",
      R"(--dataset.image_transforms.tfs={"blur": {"type": "Identity", "weight": 2}})",
      "--policy.normalization_mapping={STATE: MIN_MAX}",
      "--policy.pretrained_path=/weights",
      "--rename_map={observation.images.a: observation.images.b}",
  }));
  ASSERT_EQ(line.config.policy->input_features.size(), 1u);
  EXPECT_EQ(line.config.policy->input_features[0].first, "observation.state");
  EXPECT_EQ(line.config.policy->input_features[0].second,
            (PolicyFeature{FeatureType::kState, {4}}));
  const auto& tfs = line.config.dataset.image_transforms.tfs;
  ASSERT_EQ(tfs.size(), 1u);
  EXPECT_EQ(tfs[0].first, "blur");
  EXPECT_EQ(tfs[0].second.weight, 2.0);
  EXPECT_THAT(act(line).normalization_mapping,
              ElementsAre(Pair("STATE", NormalizationMode::kMinMax)));
  EXPECT_THAT(line.config.rename_map,
              ElementsAre(Pair("observation.images.a", "observation.images.b")));
}

TEST(CommandLine, AGroupGivenAsAnObjectFillsInWhatItNames) {
  const TrainCommandLine line =
      parse({"--policy={type: act, chunk_size: 5, n_action_steps: 5}", "--policy.dim_model=64",
             "--dataset={repo_id: a/b, root: /data}", "--dataset.eval_split=0.1"});
  EXPECT_EQ(act(line).chunk_size, 5);
  EXPECT_EQ(act(line).dim_model, 64);
  EXPECT_EQ(line.config.dataset.repo_id, "a/b");
  EXPECT_THAT(line.config.dataset.root, Optional(std::string("/data")));
  EXPECT_EQ(line.config.dataset.eval_split, 0.1);
  EXPECT_THAT(line.given, Contains("dataset.root"));
  EXPECT_THAT(line.given, Contains("policy.chunk_size"));
}

TEST(CommandLine, OptionsWithoutEffectAreKept) {
  const TrainConfig config =
      parse(plain({"--persistent_workers=false", "--dataloader_multiprocessing_context=null",
                   "--dataset.video_backend=pyav", "--dataset.streaming_prefetch_episodes=3"}))
          .config;
  EXPECT_FALSE(config.persistent_workers);
  EXPECT_EQ(config.dataloader_multiprocessing_context, std::nullopt);
  EXPECT_EQ(config.dataset.video_backend, "pyav");
  EXPECT_EQ(config.dataset.streaming_prefetch_episodes, 3);
}

TEST(CommandLine, HelpLooksAtNothingElse) {
  EXPECT_TRUE(parse({"--nonsense", "-h", "more"}).help);
  EXPECT_TRUE(parse({"--steps=x", "--help"}).help);
}

TEST(CommandLine, TheDefaultOfPushToHubIsTurnedOffWithANotice) {
  const TrainCommandLine line = parse(plain({}));
  EXPECT_FALSE(line.config.policy->push_to_hub);
  EXPECT_THAT(line.notices, ElementsAre(HasSubstr("--policy.push_to_hub=false")));
  const TrainCommandLine silent = parse(plain({"--policy.push_to_hub=false"}));
  EXPECT_FALSE(silent.config.policy->push_to_hub);
  EXPECT_THAT(silent.notices, IsEmpty());
}

TEST(CommandLine, ShardingOverAllProcessesIsResolvedWhenTheirNumberIsKnown) {
  EXPECT_EQ(parse(plain({"--parallelism.dp_shard=-1"})).config.parallelism.dp_shard, -1);
}

TEST(CommandLine, AnObjectForAGroupGivesItsOptions) {
  const TrainCommandLine line = parse(plain({"--optimizer={type: sgd, momentum: 0.9}"}));
  EXPECT_EQ(std::get<SgdConfig>(*line.config.optimizer).momentum, 0.9);
  EXPECT_THAT(line.given, Contains("optimizer.momentum"));
  EXPECT_THAT(line.given, Contains("optimizer.type"));
}

TEST(CommandLine, NamesOfTheRunDefaultToThePolicyAndTheTime) {
  TrainConfig config = parse(plain({})).config;
  resolve_output(config);
  EXPECT_THAT(config.job_name, Optional(std::string("act")));
  EXPECT_THAT(*config.output_dir, ::testing::MatchesRegex("outputs/train/....-..-../..-..-.._act"));
  TrainConfig named = parse(plain({"--job_name=mine", "--output_dir=runs/mine"})).config;
  resolve_output(named);
  EXPECT_THAT(named.job_name, Optional(std::string("mine")));
  EXPECT_THAT(named.output_dir, Optional(std::string("runs/mine")));
}

TEST(CommandLine, AFileIsOverriddenByFlags) {
  const TrainCommandLine line =
      parse({"--config_path=" + kCheckpoints + "/state_sched/000006", "--batch_size=2",
             "--policy.dim_model=64", "--scheduler.decay_lr=0.0005", "--output_dir=elsewhere"});
  EXPECT_EQ(line.config.batch_size, 2);
  EXPECT_EQ(line.config.steps, 6);
  EXPECT_EQ(act(line).dim_model, 64);
  EXPECT_EQ(act(line).chunk_size, 5);
  EXPECT_EQ(std::get<CosineDecayWithWarmupConfig>(*line.config.scheduler).decay_lr, 0.0005);
  EXPECT_EQ(std::get<CosineDecayWithWarmupConfig>(*line.config.scheduler).num_decay_steps, 100);
  EXPECT_THAT(line.config.output_dir, Optional(std::string("elsewhere")));
  EXPECT_FALSE(line.given.contains("steps"));
  EXPECT_EQ(line.config_file,
            kCheckpoints + "/state_sched/000006/pretrained_model/train_config.json");
  EXPECT_EQ(line.config.checkpoint_path, std::nullopt);
}

TEST(CommandLine, MapsOfTheCommandLineJoinThoseOfTheFileAsInLeRobot) {
  const TrainCommandLine line =
      parse({"--config_path=" + kCheckpoints + "/state_sched/000006",
             "--dataset.image_transforms.tfs={hue: {weight: 0.5}, none: {type: Identity}}"});
  const auto& tfs = line.config.dataset.image_transforms.tfs;
  ASSERT_EQ(tfs.size(), 7u);
  EXPECT_EQ(tfs[3].second.weight, 0.5);
  EXPECT_EQ(tfs[3].second.type, "ColorJitter");
  EXPECT_EQ(tfs[6].first, "none");
}

TEST(CommandLine, ResumeNamesTheCheckpointAndItsWeights) {
  const TrainCommandLine line =
      parse({"--resume=true", "--config_path=" + kCheckpoints + "/state_single/last"});
  const std::string checkpoint = kCheckpoints + "/state_single/000040";
  EXPECT_TRUE(line.config.resume);
  EXPECT_THAT(line.config.checkpoint_path, Optional(checkpoint));
  EXPECT_THAT(line.config.policy->pretrained_path, Optional(checkpoint + "/pretrained_model"));
  EXPECT_EQ(std::get<AdamWConfig>(*line.config.optimizer).lr, 1e-5);
  EXPECT_THAT(line.notices, IsEmpty());
}

TEST(CommandLine, ResumeWorksFromInsideTheCheckpoint) {
  const fs::path before = fs::current_path();
  const std::string checkpoint = kCheckpoints + "/state_single/000040";
  for (const auto& [folder, given] :
       {std::pair{"/pretrained_model", "train_config.json"}, std::pair{"/pretrained_model", "."},
        std::pair{"/pretrained_model", ".."}, std::pair{"", "pretrained_model"}, std::pair{"", "."},
        std::pair{"/..", "last"}, std::pair{"/..", "./000040/"}}) {
    fs::current_path(checkpoint + folder);
    const TrainCommandLine line = parse({"--resume=true", std::string("--config_path=") + given});
    const fs::path found = fs::absolute(*line.config.checkpoint_path).lexically_normal();
    fs::current_path(before);
    EXPECT_TRUE(fs::equivalent(found, checkpoint)) << given << ": " << found;
    EXPECT_FALSE(found.filename().empty()) << found;
  }
}

TEST(CommandLine, PolicyPathReadsTheFolderAndFlagsOverride) {
  const std::string folder = kCheckpoints + "/state_single/000040/pretrained_model";
  const TrainCommandLine line =
      parse({"--dataset.repo_id=a/b", "--policy.path=" + folder, "--policy.dropout=0.5"});
  EXPECT_EQ(act(line).chunk_size, 5);
  EXPECT_EQ(act(line).dropout, 0.5);
  EXPECT_THAT(line.config.policy->pretrained_path, Optional(folder));
  EXPECT_TRUE(line.given.contains("policy.path"));
  // A checkpoint and its `last` stand for the same folder.
  for (const char* other : {"/state_single/000040", "/state_single/last"})
    EXPECT_THAT(parse({"--dataset.repo_id=a/b", "--policy.path=" + kCheckpoints + other})
                    .config.policy->pretrained_path,
                Optional(folder));
}

}  // namespace
}  // namespace lerobot::config::test
