// A resumed run is the uninterrupted run: same samples, same losses, same weights.
#include <cmath>

#include "lerobot/serialization/safetensors.h"
#include "tests/train/run_fixture.h"

namespace lerobot::train {
namespace {

class Resume : public RunTest {
 protected:
  static std::vector<std::string> resume(const fs::path& config_path,
                                         const std::vector<std::string>& more = {}) {
    return with({"--resume=true", "--config_path=" + config_path.string()}, more);
  }

  /// Trains "whole" to the end, and "parts" with a stop and a resume after each of `stops` steps.
  void expect_same_run(const std::vector<std::string>& extra, std::vector<int> stops, int steps) {
    ASSERT_EQ(train_program(with(with(small_act("whole", "toy_state"), extra),
                                 {fmt::format("--steps={}", steps)})),
              0);
    bool first = true;
    stops.push_back(steps);
    for (int stop : stops) {
      const auto until = fmt::format("--steps={}", stop);
      const int code =
          first ? train_program(with(with(small_act("parts", "toy_state"), extra), {until}))
                : train_program(resume(output("parts") / "checkpoints" / "last", {until}));
      ASSERT_EQ(code, 0);
      first = false;
    }
    expect_equal_samples("whole", "parts", 0);
    expect_equal_files("whole", "parts", fmt::format("{:06}", steps));
  }

  void expect_equal_samples(const std::string& a, const std::string& b, std::size_t from) const {
    const auto left = samples(a), right = samples(b);
    ASSERT_EQ(left.size(), right.size());
    for (std::size_t i = from; i < left.size(); ++i)
      EXPECT_EQ(left[i], right[i]) << "step " << i + 1;
  }

  void expect_equal_files(const std::string& a, const std::string& b,
                          const std::string& step) const {
    for (const char* file :
         {"pretrained_model/model.safetensors", "training_state/optimizer_state.safetensors",
          "training_state/rng_state.safetensors"})
      EXPECT_EQ(read_text_file(checkpoint(a, step) / file),
                read_text_file(checkpoint(b, step) / file))
          << file;
  }
};

// toy_state has 63 frames: 16 batches of 4 an epoch.
TEST_F(Resume, InTheFirstEpoch) { expect_same_run({}, {5}, 12); }
TEST_F(Resume, InLaterEpochs) { expect_same_run({}, {20, 37}, 40); }
TEST_F(Resume, ExactlyBetweenTwoEpochs) { expect_same_run({}, {16, 32}, 35); }
TEST_F(Resume, WithDecodeThreads) { expect_same_run({"--num_workers=2"}, {7, 21}, 24); }
TEST_F(Resume, WithinAnAccumulatedUpdate) {
  expect_same_run({"--accelerator.gradient_accumulation.steps=4"}, {6, 9}, 12);
}
TEST_F(Resume, WithTheAverageOfWeights) {
  expect_same_run({"--ema.enable=true"}, {6}, 10);
  const fs::path last = checkpoint("parts", "000010");
  EXPECT_EQ(
      read_text_file(last / "pretrained_model_ema/model.safetensors"),
      read_text_file(checkpoint("whole", "000010") / "pretrained_model_ema/model.safetensors"));
}
TEST_F(Resume, WithAScheduleThatWasPlannedForTheWholeRun) {
  const std::vector<std::string> schedule = {"--use_policy_training_preset=false",
                                             "--optimizer.type=adamw",
                                             "--optimizer.lr=0.001",
                                             "--scheduler.type=cosine_decay_with_warmup",
                                             "--scheduler.num_warmup_steps=2",
                                             "--scheduler.num_decay_steps=8",
                                             "--scheduler.peak_lr=0.001",
                                             "--scheduler.decay_lr=0.0001"};
  // The run is cut by a checkpoint in its middle, not by fewer steps: those would plan another
  // curve.
  ASSERT_EQ(train_program(with(with(small_act("whole", "toy_state"), schedule),
                               {"--steps=10", "--save_freq=5"})),
            0);
  fs::copy(output("whole"), output("parts"),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  ASSERT_EQ(train_program(resume(checkpoint("parts", "000005"))), 0);
  expect_equal_samples("whole", "parts", 0);
  expect_equal_files("whole", "parts", "000010");
}

TEST_F(Resume, WithALearningRateOfTheCommandLine) {
  ASSERT_EQ(train_program(with(small_act("run", "toy_state"), {"--steps=2"})), 0);
  ASSERT_EQ(train_program(resume(output("run"), {"--steps=4", "--optimizer.lr=0.002"})), 0);
  std::vector<double> rates;
  for (const Json& line : samples("run")) rates.push_back(line["lr"]);
  EXPECT_EQ(rates, (std::vector<double>{1e-5, 1e-5, 0.002, 0.002}));
}

TEST_F(Resume, WithALearningRateOfTheCommandLineUnderASchedule) {
  const std::vector<std::string> schedule = {
      "--use_policy_training_preset=false", "--optimizer.type=adamw", "--optimizer.lr=0.001",
      "--scheduler.type=constant_with_warmup", "--scheduler.num_warmup_steps=4"};
  ASSERT_EQ(train_program(with(with(small_act("run", "toy_state"), schedule),
                               {"--steps=4", "--save_freq=2"})),
            0);
  ASSERT_EQ(train_program(resume(checkpoint("run", "000002"), {"--optimizer.lr=0.01"})), 0);
  std::vector<double> rates;
  for (const Json& line : samples("run")) rates.push_back(line["lr"]);
  ASSERT_EQ(rates.size(), 4u);
  EXPECT_NEAR(rates[1], 0.001 / 4, 1e-12);
  EXPECT_NEAR(rates[2], 0.01 * 2 / 4, 1e-12);
  EXPECT_NEAR(rates[3], 0.01 * 3 / 4, 1e-12);
}

TEST_F(Resume, OfACheckpointThatLeRobotWrote) {
  const fs::path run = output("lerobot");
  fs::create_directories(run / "checkpoints");
  fs::copy(data() / "checkpoints/state_single/000008", run / "checkpoints/000008",
           fs::copy_options::recursive);
  ASSERT_EQ(train_program(resume(run / "checkpoints/000008",
                                 {"--dataset.root=" + (data() / "datasets/toy_state").string(),
                                  "--log_samples=true"})),
            0);
  const auto expected = lines(data() / "logs/state_single.rank0.jsonl");
  const auto actual = samples("lerobot");
  ASSERT_EQ(actual.size(), 32u);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const Json& whole = expected[i + 8];
    EXPECT_EQ(actual[i]["step"], whole["step"]);
    EXPECT_EQ(actual[i]["index"], whole["index"]);
    EXPECT_NEAR(actual[i]["loss"].get<double>(), whole["loss"].get<double>(),
                1e-4 * whole["loss"].get<double>());
  }
}

TEST_F(Resume, OfLeRobotsTwoProcessesInOneSeesTheirSamplesAtEveryStep) {
  const fs::path run = output("lerobot");
  fs::create_directories(run / "checkpoints");
  fs::copy(data() / "checkpoints/state_ddp2/000004", run / "checkpoints/000004",
           fs::copy_options::recursive);
  ASSERT_EQ(train_program(resume(run / "checkpoints/000004",
                                 {"--dataset.root=" + (data() / "datasets/toy_state").string(),
                                  "--parallelism.dp_replicate=1", "--batch_size=8",
                                  "--log_samples=true", "--steps=17"})),
            0);
  const auto rank0 = lines(data() / "logs/state_ddp2.rank0.jsonl");
  const auto rank1 = lines(data() / "logs/state_ddp2.rank1.jsonl");
  const auto actual = samples("lerobot");
  ASSERT_EQ(actual.size(), 13u);
  for (std::size_t i = 0; i < 4; ++i) {
    // Step 8 ends the epoch: its last row is the epoch's first sample once more.
    Json both = rank0[i + 4]["index"];
    for (const Json& index : rank1[i + 4]["index"]) both.push_back(index);
    EXPECT_EQ(actual[i]["index"], both) << "step " << i + 5;
  }
  // The filled batches go on in a run that is resumed once more.
  ASSERT_EQ(train_program(resume(run, {"--steps=24"})), 0);
  for (const Json& line : samples("lerobot")) EXPECT_EQ(line["index"].size(), 8u);
}

TEST_F(Resume, OfARunWhoseFolderWasMoved) {
  ASSERT_EQ(train_program(with(small_act("before", "toy_state"), {"--steps=3"})), 0);
  fs::rename(output("before"), output("after"));
  ASSERT_EQ(train_program(resume(output("after") / "checkpoints/last", {"--steps=5"})), 0);
  EXPECT_TRUE(fs::exists(checkpoint("after", "000005")));
  EXPECT_FALSE(fs::exists(output("before")));
  EXPECT_EQ(samples("after").size(), 5u);
}

TEST_F(Resume, FromEveryPathThatMeansACheckpoint) {
  ASSERT_EQ(train_program(with(small_act("run", "toy_state"), {"--steps=2"})), 0);
  const fs::path checkpoints = output("run") / "checkpoints";
  int steps = 3;
  for (const fs::path& path : {checkpoints / "last/pretrained_model/train_config.json",
                               checkpoints / "last/pretrained_model", checkpoints / "last",
                               checkpoints / "000002", checkpoints, output("run")})
    EXPECT_EQ(train_program(resume(path, {fmt::format("--steps={}", steps++)})), 0) << path;
}

TEST_F(Resume, OfWhatIsNotThereTouchesNothing) {
  EXPECT_NE(train_program(resume(folder_ / "nowhere" / "train_config.json")), 0);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Resume, WithAnotherBatchSizeGoesOnAtTheSameSample) {
  ASSERT_EQ(train_program(with(small_act("run", "toy_state"), {"--steps=20"})), 0);
  ASSERT_EQ(train_program(resume(output("run"), {"--steps=23", "--batch_size=6"})), 0);
  // 20 batches of 4 are one epoch of 63 and 16 samples of the next; batches of 6 go on from there.
  ASSERT_EQ(train_program(with(small_act("whole", "toy_state"), {"--steps=32"})), 0);
  std::vector<std::int64_t> order, resumed;
  for (const Json& line : samples("whole"))
    if (line["step"] > 20)
      for (const Json& index : line["index"]) order.push_back(index);
  for (const Json& line : samples("run"))
    if (line["step"] > 20)
      for (const Json& index : line["index"]) resumed.push_back(index);
  ASSERT_EQ(resumed.size(), 18u);
  EXPECT_EQ(resumed, std::vector<std::int64_t>(order.begin(), order.begin() + 18));
}

}  // namespace
}  // namespace lerobot::train
