#include <fstream>
#include <unistd.h>

#include "lerobot/base/files.h"
#include "tests/config/command_lines.h"

namespace lerobot::config::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

struct Resolved {
  TrainConfig config;
  std::vector<std::string> sentences;
  std::vector<std::string> notices;
};

Resolved resolve(const Words& words) {
  TrainCommandLine line = parse(words);
  std::vector<std::string> sentences = resolve_training_preset(line);
  // Done again it changes nothing.
  const Json before = to_json(line.config, policies());
  EXPECT_EQ(resolve_training_preset(line), sentences);
  EXPECT_EQ(to_json(line.config, policies()), before);
  return {std::move(line.config), std::move(sentences), std::move(line.notices)};
}

AdamWConfig adamw(const Resolved& run) {
  return std::get<AdamWConfig>(run.config.optimizer.value());
}

TEST(TrainingPreset, GivesWhatNobodyChose) {
  const Resolved run = resolve(plain({"--policy.optimizer_lr=0.001"}));
  EXPECT_EQ(adamw(run).lr, 1e-3);
  EXPECT_EQ(adamw(run).weight_decay, 1e-4);
  EXPECT_FALSE(run.config.scheduler);
  EXPECT_THAT(run.sentences, IsEmpty());
}

TEST(TrainingPreset, AGivenValueWinsAndIsSaid) {
  const Resolved run = resolve(plain({"--optimizer.lr=0.5"}));
  EXPECT_EQ(adamw(run).lr, 0.5);
  EXPECT_EQ(adamw(run).weight_decay, 1e-4);
  EXPECT_THAT(run.sentences,
              ElementsAre("--optimizer.lr=0.5 overrides the policy's preset 1e-05; the parameters "
                          "of --policy.optimizer_lr_backbone=1e-05 keep that rate"));
}

TEST(TrainingPreset, AnotherClassKeepsThePresetsSharedValues) {
  const Resolved run = resolve(plain({"--optimizer.momentum=0.9", "--optimizer.type=sgd"}));
  const auto& sgd = std::get<SgdConfig>(run.config.optimizer.value());
  EXPECT_EQ(sgd.lr, 1e-5);
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_THAT(run.sentences,
              UnorderedElementsAre("--optimizer.type=sgd overrides the policy's preset adamw",
                                   "--optimizer.momentum=0.9 overrides the policy's preset, which "
                                   "has no such option"));
}

TEST(TrainingPreset, ASchedulerMayBeAddedChangedOrTakenAway) {
  const Resolved added = resolve(plain({"--scheduler.type=constant_with_warmup"}));
  EXPECT_EQ(std::get<ConstantWithWarmupConfig>(added.config.scheduler.value()).num_warmup_steps,
            1000);
  EXPECT_THAT(added.sentences,
              ElementsAre("--scheduler.type=constant_with_warmup is used; the policy's preset "
                          "has no scheduler"));

  const Words diffusion{"--dataset.repo_id=a", "--policy.type=diffusion"};
  const auto with = [&](const std::string& word) {
    Words words = diffusion;
    words.push_back(word);
    return resolve(words);
  };
  const Resolved plain_run = resolve(diffusion);
  EXPECT_EQ(std::get<DiffuserSchedulerConfig>(plain_run.config.scheduler.value()).num_warmup_steps,
            500);
  const Resolved changed = with("--scheduler.name=linear");
  EXPECT_EQ(std::get<DiffuserSchedulerConfig>(changed.config.scheduler.value()).name, "linear");
  EXPECT_EQ(std::get<DiffuserSchedulerConfig>(changed.config.scheduler.value()).num_warmup_steps,
            500);
  const Resolved none = with("--scheduler=null");
  EXPECT_FALSE(none.config.scheduler);
  EXPECT_THAT(none.sentences,
              ElementsAre(HasSubstr("--scheduler=null overrides the policy's preset")));
}

TEST(TrainingPreset, WithoutItTheClassesDefaultsHold) {
  const Resolved run =
      resolve(plain({"--use_policy_training_preset=false", "--optimizer.lr=0.5",
                     "--scheduler={type: cosine_annealing_with_warmup, num_warmup_steps: 3}"}));
  EXPECT_EQ(std::get<AdamConfig>(run.config.optimizer.value()).lr, 0.5);
  EXPECT_THAT(run.sentences, IsEmpty());
}

TEST(TrainingPreset, ARecordedOptimizerIsNoChoiceUnlessItDiffersFromItsOwnPreset) {
  const std::string recorded =
      kCheckpoints + "/state_single/000040/pretrained_model/train_config.json";
  const Resolved repeated = resolve({"--config_path=" + recorded, "--policy.optimizer_lr=0.01"});
  EXPECT_EQ(adamw(repeated).lr, 0.01);
  EXPECT_THAT(repeated.sentences, IsEmpty());

  Json file = read_json_file(recorded);
  file["optimizer"]["lr"] = 0.25;
  const fs::path chosen =
      fs::temp_directory_path() / fmt::format("lerobot_chosen_optimizer {}.json", ::getpid());
  write_file_atomic(chosen, to_python_json(file, 4));
  const Resolved run =
      resolve({"--config_path=" + chosen.string(), "--policy.optimizer_weight_decay=0"});
  fs::remove(chosen);
  EXPECT_EQ(adamw(run).lr, 0.25);
  EXPECT_EQ(adamw(run).weight_decay, 0.0);
  EXPECT_THAT(run.sentences,
              ElementsAre(HasSubstr(chosen.string() +
                                    ": optimizer.lr=0.25 overrides the policy's preset 1e-05")));
}

TEST(TrainingPreset, AHandWrittenFileChoosesOnlyWhatItWrites) {
  const fs::path file =
      fs::temp_directory_path() / fmt::format("lerobot_hand_written {}.yaml", ::getpid());
  write_file_atomic(file,
                    "dataset: {repo_id: a}\npolicy: {type: diffusion}\noptimizer: {lr: 0.5}\n"
                    "scheduler: {name: linear}\n");
  const Resolved run = resolve({"--config_path=" + file.string()});
  const auto& adam = std::get<AdamConfig>(run.config.optimizer.value());
  EXPECT_EQ(adam.lr, 0.5);
  EXPECT_EQ(adam.weight_decay, 1e-6);
  const auto& diffuser = std::get<DiffuserSchedulerConfig>(run.config.scheduler.value());
  EXPECT_EQ(diffuser.name, "linear");
  EXPECT_EQ(diffuser.num_warmup_steps, 500);
  EXPECT_THAT(
      run.sentences,
      ElementsAre(file.string() + ": optimizer.lr=0.5 overrides the policy's preset 0.0001",
                  file.string() + ": scheduler.name=linear overrides the policy's preset cosine"));

  // The command line gives the types that the file leaves out.
  write_file_atomic(file,
                    "dataset: {repo_id: a}\npolicy: {chunk_size: 5, n_action_steps: 5}\n"
                    "use_policy_training_preset: false\noptimizer: {momentum: 0.5}\n"
                    "scheduler: {num_warmup_steps: 7}\n");
  const Resolved typed =
      resolve({"--config_path=" + file.string(), "--policy.type=act", "--optimizer.type=sgd",
               "--scheduler.type=cosine_annealing_with_warmup"});
  fs::remove(file);
  EXPECT_EQ(std::get<SgdConfig>(typed.config.optimizer.value()).momentum, 0.5);
  EXPECT_EQ(
      std::get<CosineAnnealingWithWarmupConfig>(typed.config.scheduler.value()).num_warmup_steps,
      7);
}

TEST(TrainingPreset, AResumedRunKeepsWhatIsRecorded) {
  const Words words{"--resume=true", "--config_path=" + kCheckpoints + "/state_sched/last"};
  const Resolved run = resolve(words);
  EXPECT_EQ(adamw(run).lr, 1e-3);
  EXPECT_TRUE(run.config.scheduler);

  Words single{"--resume=true", "--config_path=" + kCheckpoints + "/state_single/last",
               "--optimizer.lr=0.5", "--policy.optimizer_lr=0.1"};
  const Resolved changed = resolve(single);
  EXPECT_EQ(adamw(changed).lr, 0.5);
  EXPECT_EQ(adamw(changed).weight_decay, 1e-4);
  EXPECT_THAT(changed.notices,
              ElementsAre("--optimizer.lr=0.5 overrides the checkpoint's 1e-05",
                          HasSubstr("--policy.optimizer_* has no effect on a resumed run")));
}

}  // namespace
}  // namespace lerobot::config::test
