// What a user sees of a run: folders that are refused, files that are written, signals.
#include <chrono>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/train/run_fixture.h"

namespace lerobot::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Run : public RunTest {};

TEST_F(Run, RefusesAnOutputFolderThatExists) {
  fs::create_directories(output("taken"));
  const auto outcome = run_program(with(small_act("taken", "toy_state"), {"--steps=1"}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("exists already and --resume is false"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("--resume=true")));
  EXPECT_TRUE(fs::is_empty(output("taken")));
  fs::create_directories(checkpoint("taken", "000004"));
  EXPECT_THAT(run_program(small_act("taken", "toy_state")).text,
              HasSubstr("go on with --resume=true --config_path='" + output("taken").string()));
}

TEST_F(Run, RefusesAWrongCommandLineBeforeAnyWork) {
  const auto outcome =
      run_program(with(small_act("wrong", "toy_state"), {"--step=1", "--batch_size=zero"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("--steps"));
  EXPECT_THAT(outcome.text, HasSubstr("batch_size"));
  EXPECT_FALSE(fs::exists(output("wrong")));
}

TEST_F(Run, FindsItsFilesUnderAPathWithSpaces) {
  EXPECT_THAT(output("a run").string(), HasSubstr(" "));
  EXPECT_EQ(train_program(with(small_act("a run", "toy_state"), {"--steps=1"})), 0);
  EXPECT_TRUE(fs::exists(checkpoint("a run", "000001") / "pretrained_model/model.safetensors"));
}

TEST_F(Run, SaysThatAFinishedRunHasNothingToDo) {
  ASSERT_EQ(train_program(with(small_act("done", "toy_state"), {"--steps=1"})), 0);
  const auto outcome = run_program({"--resume=true", "--config_path=" + output("done").string()});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("Nothing to do: the checkpoint is at step 1, and --steps=1"));
}

TEST_F(Run, StartsAgainWithShortOpenMpWaitsAsTheSameProcess) {
  ::setenv("OMP_DISPLAY_ENV", "verbose", 1);
  const auto outcome = run_program({"--help"});
  ::unsetenv("OMP_DISPLAY_ENV");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("GOMP_SPINCOUNT = '1000'"));
}

TEST_F(Run, SaysWhatLeRobotSays) {
  const auto outcome = run_program(with(small_act("run", "toy_state"), {"--steps=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (const char* line :
       {"Creating dataset", "Creating policy", "Creating optimizer and scheduler",
        "Output dir: ", "cfg.steps=2 (2)", "dataset.num_frames=63 (63)", "dataset.num_episodes=5",
        "Effective batch size: 4 x 1 dp workers x 1 grad accum = 4 (topology: dp_replicate=1, "
        "dp_shard=1)",
        "num_learnable_params=", "num_total_params=",
        "Start offline training on a fixed dataset, with effective batch size: 4",
        "step:1 smpl:4 ep:0 epch:0.06 loss:16.224 grdn:230.013 lr:1.0e-05 data_s:",
        "l1_loss:1.203 kld_loss:1.502", "Checkpoint policy after step 2", "End of training"})
    EXPECT_THAT(outcome.text, HasSubstr(line));
}

TEST_F(Run, StopsAfterTheStepOnSigintAndResumes) {
  const auto flags = with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=0"});
  const auto outcome = run_program(flags, "step:3 ", SIGINT);
  EXPECT_EQ(outcome.code, 130) << outcome.text;
  // With the program as it was called, so that the line can be pasted.
  EXPECT_THAT(outcome.text, HasSubstr("Go on with: " LEROBOT_PROGRAM_DIR
                                      "/lerobot-train --resume=true --config_path='"));
  const auto done = samples("run").size();
  EXPECT_TRUE(fs::exists(checkpoint("run", fmt::format("{:06}", done))));
  EXPECT_EQ(train_program(std::vector<std::string>{"--resume=true",
                                                   "--config_path=" + output("run").string(),
                                                   fmt::format("--steps={}", done + 2)}),
            0);
  EXPECT_EQ(samples("run").size(), done + 2);
}

TEST_F(Run, ExitsWith143OnSigterm) {
  const auto flags = with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=0"});
  EXPECT_EQ(run_program(flags, "step:2 ", SIGTERM).code, 143);
}

TEST_F(Run, LeavesUsableCheckpointsWhenKilled) {
  const auto flags = with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=1"});
  EXPECT_EQ(run_program(flags, "after step 6\n", SIGKILL).code, -SIGKILL);
  const auto outcome = run_program({"--resume=true", "--config_path=" + output("run").string(),
                                    fmt::format("--steps={}", samples("run").size() + 1)});
  EXPECT_EQ(outcome.code, 0) << outcome.text;
}

TEST_F(Run, MeasuresHeldOutEpisodes) {
  ASSERT_EQ(train_program(with(small_act("run", "toy_state"),
                               {"--steps=4", "--dataset.eval_split=0.3", "--eval_steps=2"})),
            0);
  int evaluations = 0;
  for (const Json& line : lines(output("run") / "metrics.jsonl"))
    if (line.contains("eval_loss")) {
      ++evaluations;
      EXPECT_GT(line["eval_loss"].get<double>(), 0);
    }
  EXPECT_EQ(evaluations, 2);
}

TEST_F(Run, ReportsTheDataPathAlone) {
  const auto outcome =
      run_program(with(small_act("data", "toy_h264"), {"--steps=5", "--data_only=true"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("smp/s:"));
  EXPECT_THAT(outcome.text, HasSubstr("first batch after"));
  const auto metrics = lines(output("data") / "metrics.jsonl");
  ASSERT_FALSE(metrics.empty());
  EXPECT_EQ(metrics.back()["samples"], 20);
  EXPECT_FALSE(fs::exists(output("data") / "checkpoints"));
}

TEST_F(Run, FineTunesFromACheckpointOfLeRobot) {
  auto flags = small_act("tuned", "toy_state");
  std::erase_if(flags, [](const std::string& flag) { return flag.starts_with("--policy."); });
  const fs::path base = data() / "checkpoints/state_single/000040/pretrained_model";
  ASSERT_EQ(train_program(with(flags, {"--policy.path=" + base.string(),
                                       "--policy.push_to_hub=false", "--steps=2"})),
            0);
  const Json config =
      read_json_file(checkpoint("tuned", "000002") / "pretrained_model/config.json");
  EXPECT_EQ(config["pretrained_path"], base.string());
  EXPECT_EQ(config["dim_model"], 32);
  // Weights of step 40 start with a lower loss than fresh ones (16.2).
  EXPECT_LT(samples("tuned")[0]["loss"].get<double>(), 15.0);
}

}  // namespace
}  // namespace lerobot::train
