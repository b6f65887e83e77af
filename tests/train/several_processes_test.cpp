// What a run of several processes does besides learning: who writes what, what numbers mean, how it
// ends, and how it goes on with other processes. (LeRobot's own numbers: reproduces_lerobot_test.)
#include "tests/train/several_processes.h"

#include <csignal>

#include <gmock/gmock.h>

#include "lerobot/serialization/safetensors.h"

namespace lerobot::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Json> with_key(const std::vector<Json>& lines, const char* key) {
  std::vector<Json> found;
  for (const Json& line : lines)
    if (line.contains(key)) found.push_back(line);
  return found;
}

TEST_F(SeveralProcesses, CountTheSamplesOfAllOnce) {
  const auto outcome = launch(2, with(small_act("run", "toy_state"),
                                      {"--steps=10", "--log_freq=5", "--save_checkpoint=false",
                                       "--accelerator.gradient_accumulation.steps=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              HasSubstr("Effective batch size: 4 x 2 dp workers x 2 grad accum = 16 (topology: "
                        "dp_replicate=2, dp_shard=1)"));
  EXPECT_THAT(outcome.text, HasSubstr("step:10 smpl:80 ep:6 epch:1.27 "));
  const auto log_lines = with_key(lines(output("run") / "metrics.jsonl"), "loss");
  ASSERT_EQ(log_lines.size(), 2u);
  EXPECT_EQ(log_lines[1]["samples"], 80);
  EXPECT_NEAR(log_lines[1]["samples_per_s"].get<double>() * log_lines[1]["step_s"].get<double>(), 8,
              1e-6);
  double loss = 0;
  for (int rank : {0, 1})
    for (std::size_t i = 5; i < 10; ++i) loss += samples("run", rank)[i]["loss"].get<double>() / 10;
  EXPECT_NEAR(log_lines[1]["loss"].get<double>(), loss, 1e-6 * loss);
}

TEST_F(SeveralProcesses, LeaveTheLogToRank0) {
  const auto outcome = launch(2, with(small_act("run", "toy_state"), {"--steps=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(lines_of_rank(outcome, 0), HasSubstr("End of training"));
  EXPECT_EQ(lines_of_rank(outcome, 1), "");
}

TEST_F(SeveralProcesses, MeasureTheHeldOutLossOfOneProcess) {
  const std::vector<std::string> flags = {"--steps=1",
                                          "--dataset.eval_split=0.5",
                                          "--eval_steps=1",
                                          "--batch_size=5",
                                          "--save_checkpoint=false",
                                          "--policy.optimizer_lr=0",
                                          "--policy.optimizer_lr_backbone=0"};
  ASSERT_EQ(train_program(with(small_act("one", "toy_state"), flags)), 0);
  const auto outcome = launch(3, with(small_act("three", "toy_state"), flags));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  const auto loss = [&](const std::string& run) {
    return with_key(lines(output(run) / "metrics.jsonl"), "eval_loss")
        .at(0)["eval_loss"]
        .get<double>();
  };
  EXPECT_NEAR(loss("three"), loss("one"), 1e-6 * loss("one"));
}

TEST_F(SeveralProcesses, StopAfterTheSameStepWhicheverGetsTheSignal) {
  const auto outcome =
      launch(2, with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=0"}), "",
             "step:3 ", [&] { signal_rank(1, SIGINT); });
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(lines_of_rank(outcome, 0),
              AllOf(HasSubstr("Stopped by SIGINT after step"), HasSubstr("under your launcher")));
  const auto done = samples("run").size();
  EXPECT_EQ(samples("run", 1).size(), done);
  EXPECT_TRUE(fs::exists(checkpoint("run", fmt::format("{:06}", done))));
  const auto resumed = launch(2, {"--resume=true", "--config_path=" + output("run").string(),
                                  fmt::format("--steps={}", done + 2)});
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_EQ(samples("run", 1).size(), done + 2);
}

TEST_F(SeveralProcesses, EndWithTheMessageOfTheOneThatFailed) {
  fs::create_directories(output("taken"));
  const auto outcome = launch(2, with(small_act("taken", "toy_state"), {"--steps=1"}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(lines_of_rank(outcome, 0), HasSubstr("exists already and --resume is false"));
  EXPECT_TRUE(fs::is_empty(output("taken")));
}

TEST_F(SeveralProcesses, EndWhenACheckpointCannotBeWritten) {
  // Rank 0 can't write files above 50 kB: the model is larger.
  const auto outcome =
      launch(2, with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=2"}),
             "if [ $RANK = 0 ]; then trap '' XFSZ; ulimit -f 100; else trap '' TERM; fi");
  EXPECT_EQ(outcome.code, 1) << outcome.text;
  EXPECT_THAT(lines_of_rank(outcome, 0), HasSubstr("File too large"));
  EXPECT_THAT(lines_of_rank(outcome, 1), AllOf(HasSubstr("rank 0"), HasSubstr("File too large")));
  EXPECT_FALSE(fs::exists(checkpoint("run", "000002")));
}

TEST_F(SeveralProcesses, EndWhenOneIsKilledAndGoOnFromTheLastCheckpoint) {
  const auto outcome =
      launch(2, with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=2"}), "",
             "after step 6\n", [&] { signal_rank(1, SIGKILL); });
  EXPECT_NE(outcome.code, 0);
  const auto resumed = launch(2, {"--resume=true", "--config_path=" + output("run").string(),
                                  fmt::format("--steps={}", samples("run").size() + 1)});
  EXPECT_EQ(resumed.code, 0) << resumed.text;
}

TEST_F(SeveralProcesses, GoOnWithinAnAccumulatedUpdate) {
  const std::vector<std::string> flags = {"--accelerator.gradient_accumulation.steps=4",
                                          "--steps=8", "--save_freq=6"};
  ASSERT_EQ(launch(2, with(small_act("whole", "toy_state"), flags)).code, 0);
  fs::copy(output("whole"), output("parts"),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const auto outcome =
      launch(2, {"--resume=true", "--config_path=" + checkpoint("parts", "000006").string()});
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  const auto whole = samples("whole"), parts = samples("parts");
  ASSERT_EQ(parts.size(), 8u);
  for (std::size_t i = 6; i < 8; ++i) {
    EXPECT_EQ(parts[i]["index"], whole[i]["index"]);
    EXPECT_NEAR(parts[i]["loss"].get<double>(), whole[i]["loss"].get<double>(), 1e-5);
    EXPECT_NEAR(parts[i]["grad_norm"].get<double>(), whole[i]["grad_norm"].get<double>(), 1e-3);
  }
}

TEST_F(SeveralProcesses, SeeTheSamplesOfOtherNumbersOfThemAtEveryStep) {
  ASSERT_EQ(train_program(with(small_act("one", "toy_state"), {"--batch_size=6", "--steps=26"})),
            0);
  ASSERT_EQ(launch(2, with(small_act("run", "toy_state"), {"--batch_size=3", "--steps=13"})).code,
            0);
  const auto resumed = launch(3, {"--resume=true", "--config_path=" + output("run").string(),
                                  "--batch_size=2", "--steps=26"});
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(resumed.text, HasSubstr("this run has 3 processes and divides the model anew"));
  EXPECT_THAT(resumed.text, Not(HasSubstr("other samples")));
  const auto whole = steps_of("one", 1);
  std::vector<Json> parts = steps_of("run", 2);
  for (int rank = 0; rank < 3; ++rank) {
    // Rank 2 has come later: its file begins with step 14.
    for (const Json& line : samples("run", rank)) {
      if (line["step"] <= 13) continue;
      const auto i = line["step"].get<std::size_t>() - 1;
      if (rank == 0) parts[i] = Json::array();
      for (const Json& index : line["index"]) parts[i].push_back(index);
    }
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Json both = whole[i];
    // 63 samples are 10 batches of 6 and one of 3: several processes fill it from the beginning.
    if (both.size() < 6) both = parts[i];
    EXPECT_EQ(parts[i], both) << "step " << i + 1;
  }
}

TEST_F(SeveralProcesses, WarnWhenTheirStepsCoverOtherSamples) {
  ASSERT_EQ(launch(2, with(small_act("run", "toy_state"), {"--steps=2"})).code, 0);
  const auto resumed =
      launch(3, {"--resume=true", "--config_path=" + output("run").string(), "--steps=3"});
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(lines_of_rank(resumed, 0),
              HasSubstr("Resuming with 12 samples a step (batch_size=4 on 3 processes), the "
                        "checkpoint was written with 8 samples a step (batch_size=4 on 2 "
                        "processes)"));
  EXPECT_EQ(lines_of_rank(resumed, 1), "");
}

TEST_F(SeveralProcesses, RefuseDegreesThatDoNotFitThem) {
  const auto outcome =
      launch(2, with(small_act("run", "toy_state"), {"--parallelism.dp_replicate=3"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("dp_replicate=3 * dp_shard=1 * ring=1 * ulysses=1 = 3 != "
                                      "WORLD_SIZE=2"));
  EXPECT_FALSE(fs::exists(output("run")));
}

TEST_F(SeveralProcesses, StreamTheSamplesOfOne) {
  const std::vector<std::string> flags = {"--steps=12", "--dataset.streaming=true",
                                          "--dataset.streaming_order=global",
                                          "--save_checkpoint=false", "--num_workers=2"};
  ASSERT_EQ(train_program(with(small_act("one", "toy_state"), with(flags, {"--batch_size=6"}))), 0);
  const auto outcome =
      launch(3, with(small_act("three", "toy_state"), with(flags, {"--batch_size=2"})));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(steps_of("three", 3), steps_of("one", 1));
}

TEST_F(SeveralProcesses, ReadTheirSharesOfTheDataAlone) {
  const auto outcome =
      launch(2, with(small_act("data", "toy_state"), {"--steps=3", "--data_only=true"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(lines(output("data") / "metrics.jsonl").back()["samples"], 12);
  EXPECT_EQ(lines_of_rank(outcome, 1), "");
}

TEST_F(SeveralProcesses, RefuseAcceleratesOwnConfiguration) {
  const auto outcome = launch(1, small_act("run", "toy_state"), "export ACCELERATE_USE_FSDP=true");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("ACCELERATE_USE_FSDP"));
  EXPECT_FALSE(fs::exists(output("run")));
}

}  // namespace
}  // namespace lerobot::train
