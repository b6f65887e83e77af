// Whole runs against LeRobot's own logs of the same runs (tests/data/logs): the same samples,
// losses, gradient norms and learning rates, and in the end the same weights and optimizer state.
#include "tests/train/lerobot_runs.h"

namespace lerobot::train {
namespace {

TEST_F(ReproducesLeRobot, InASingleProcessOverThreeEpochs) {
  ASSERT_EQ(
      train_program(with(small_act("state_single", "toy_state"), {"--steps=40", "--save_freq=8"})),
      0);
  expect_log("state_single", 1e-4, 1e-4);
  const fs::path fixture = data() / "checkpoints/state_single";
  for (const char* step : {"000008", "000040"}) {
    const fs::path ours = checkpoint("state_single", step);
    expect_tensors(ours / "pretrained_model/model.safetensors",
                   fixture / step / "pretrained_model/model.safetensors", 1e-4);
    expect_tensors(ours / "training_state/optimizer_state.safetensors",
                   fixture / step / "training_state/optimizer_state.safetensors", 1e-3);
    for (const char* file :
         {"pretrained_model/config.json", "pretrained_model/policy_preprocessor.json",
          "pretrained_model/policy_postprocessor.json", "training_state/training_step.json",
          "training_state/optimizer_param_groups.json"})
      EXPECT_EQ(read_text_file(ours / file), read_text_file(fixture / step / file)) << file;
    for (const char* file :
         {"pretrained_model/policy_preprocessor_step_3_normalizer_processor.safetensors",
          "pretrained_model/policy_postprocessor_step_0_unnormalizer_processor.safetensors"})
      EXPECT_EQ(read_text_file(ours / file), read_text_file(fixture / step / file)) << file;
  }
}

TEST_F(ReproducesLeRobot, RandomStatesIncluded) {
  ASSERT_EQ(
      train_program(with(small_act("state_single", "toy_state"), {"--steps=8", "--save_freq=8"})),
      0);
  EXPECT_EQ(
      read_text_file(checkpoint("state_single", "000008") / "training_state/rng_state.safetensors"),
      read_text_file(data() /
                     "checkpoints/state_single/000008/training_state/rng_state.safetensors"));
}

TEST_F(ReproducesLeRobot, WithGradientAccumulation) {
  const Json config =
      read_json_file(data() / "checkpoints/state_accum/000008/pretrained_model/train_config.json");
  ASSERT_EQ(train_program(with(small_act("state_accum", "toy_state"),
                               {"--steps=8", "--save_freq=8",
                                fmt::format("--accelerator.gradient_accumulation.steps={}",
                                            config["accelerator"]["gradient_accumulation"]["steps"]
                                                .get<std::int64_t>())})),
            0);
  expect_log("state_accum", 1e-4, 1e-4);
  expect_tensors(checkpoint("state_accum", "000008") / "pretrained_model/model.safetensors",
                 data() / "checkpoints/state_accum/000008/pretrained_model/model.safetensors",
                 1e-4);
}

TEST_F(ReproducesLeRobot, InTwoProcesses) {
  const auto outcome =
      launch(2, with(small_act("state_ddp2", "toy_state"), {"--steps=8", "--save_freq=4"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (int rank : {0, 1}) expect_log("state_ddp2", 1e-5, 1e-5, rank);
  const fs::path ours = checkpoint("state_ddp2", "000004");
  const fs::path fixture = data() / "checkpoints/state_ddp2/000004";
  expect_tensors(ours / "pretrained_model/model.safetensors",
                 fixture / "pretrained_model/model.safetensors", 1e-5);
  expect_tensors(ours / "training_state/optimizer_state.safetensors",
                 fixture / "training_state/optimizer_state.safetensors", 1e-3);
  for (const char* file :
       {"pretrained_model/config.json", "training_state/training_step.json",
        "training_state/optimizer_param_groups.json", "training_state/rng_state.safetensors"})
    EXPECT_EQ(read_text_file(ours / file), read_text_file(fixture / file)) << file;
  const auto degrees = [](const fs::path& checkpoint) {
    return read_json_file(checkpoint / "pretrained_model/train_config.json")["parallelism"];
  };
  EXPECT_EQ(degrees(ours), degrees(fixture));
}

TEST_F(ReproducesLeRobot, InTwoShards) {
  const auto outcome = launch(2, with(small_act("state_fsdp2", "toy_state"),
                                      {"--steps=8", "--save_freq=4", "--parallelism.dp_shard=2",
                                       "--checkpoint_format=safetensors_dcp"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (int rank : {0, 1}) expect_log("state_fsdp2", 1e-5, 1e-5, rank);
  const fs::path ours = checkpoint("state_fsdp2", "000008");
  const fs::path fixture = data() / "checkpoints/state_fsdp2/000008";
  expect_tensors(ours / "pretrained_model/model.safetensors",
                 fixture / "pretrained_model/model.safetensors", 1e-4);
  const fs::path shards = "pretrained_model/pytorch_model_fsdp_0";
  expect_tensors(*checkpoint::open_sharded_model(ours / shards),
                 *checkpoint::open_sharded_model(fixture / shards), 1e-4);
  for (const char* file : {"pretrained_model/config.json", "training_state/training_step.json",
                           "training_state/rng_state.safetensors"})
    EXPECT_EQ(read_text_file(ours / file), read_text_file(fixture / file)) << file;
}

TEST_F(ReproducesLeRobot, InTwoReplicasOfTwoShards) {
  const auto outcome = launch(
      4, with(small_act("state_hsdp4", "toy_state"),
              {"--steps=8", "--save_freq=4", "--batch_size=2", "--parallelism.dp_replicate=2",
               "--parallelism.dp_shard=2", "--checkpoint_format=dcp"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (int rank : {0, 1, 2, 3}) expect_log("state_hsdp4", 1e-5, 1e-5, rank);
  const fs::path shards = "000008/pretrained_model/pytorch_model_fsdp_0";
  expect_tensors(*checkpoint::open_sharded_model(output("state_hsdp4") / "checkpoints" / shards),
                 *checkpoint::open_sharded_model(data() / "checkpoints/state_hsdp4" / shards),
                 1e-4);
}

TEST_F(ReproducesLeRobot, WithoutThePresetAndWithACosineSchedule) {
  const Json config = read_json_file(data() / "checkpoints/state_sched" / last("state_sched") /
                                     "pretrained_model/train_config.json");
  const fs::path file = folder_ / "state_sched.json";
  Json changed = config;
  changed["dataset"]["root"] = (data() / "datasets/toy_state").string();
  write_file_atomic(file, to_python_json(changed, 4));
  ASSERT_EQ(train_program(std::vector<std::string>{"--config_path=" + file.string(),
                                                   "--output_dir=" + output("state_sched").string(),
                                                   "--log_samples=true"}),
            0);
  expect_log("state_sched", 1e-4, 1e-4);
  const auto expected = lines(data() / "logs/state_sched.rank0.jsonl");
  const auto metrics = lines(output("state_sched") / "metrics.jsonl");
  std::size_t i = 0;
  for (const Json& line : metrics) {
    if (!line.contains("lr")) continue;
    expect_close(line["lr"], expected[i]["lr"], 1e-9, "lr", i + 1);
    ++i;
  }
  EXPECT_EQ(i, expected.size());
  const fs::path ours = checkpoint("state_sched", last("state_sched"));
  EXPECT_EQ(read_text_file(ours / "training_state/scheduler_state.json"),
            read_text_file(data() / "checkpoints/state_sched" / last("state_sched") /
                           "training_state/scheduler_state.json"));
}

TEST_F(ReproducesLeRobot, UnderBf16Autocast) {
  ASSERT_EQ(
      train_program(with(small_act("state_bf16", "toy_state"),
                         {"--steps=4", "--save_freq=4", "--accelerator.mixed_precision=bf16"})),
      0);
  expect_log("state_bf16", 1e-2, 3e-2);
}

}  // namespace
}  // namespace lerobot::train
