// Whole runs of the diffusion policy against LeRobot's own (tests/data/logs): samples, losses and
// gradient norms of every step, and what is left behind; and what such a policy asks of several
// processes.
#include <cstdlib>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include "tests/train/lerobot_runs.h"

namespace lerobot::train {
namespace {

class Diffusion : public ReproducesLeRobot {
 protected:
  /// As LeRobot's runs: the threads of a convolution decide the order of its sums, and batch
  /// normalisation lets such differences grow.
  Diffusion() {
    ::setenv("OMP_NUM_THREADS", "1", 1);  // else the program takes all CPUs
    at::set_num_threads(1);
  }

  /// The flags that LeRobot's runs share.
  std::vector<std::string> diffusion(const std::string& run, const std::string& dataset,
                                     const fs::path& root, int steps) const {
    return {"--dataset.repo_id=facts/" + dataset,
            "--dataset.root=" + root.string(),
            "--policy.type=diffusion",
            "--policy.device=cpu",
            "--policy.push_to_hub=false",
            "--policy.pretrained_backbone_weights=null",
            "--policy.down_dims=[16,32]",
            "--policy.diffusion_step_embed_dim=16",
            "--policy.num_train_timesteps=20",
            "--policy.optimizer_lr=1e-3",
            "--policy.scheduler_warmup_steps=5",
            "--batch_size=4",
            "--num_workers=0",
            "--seed=1000",
            "--log_freq=1",
            "--log_samples=true",
            fmt::format("--steps={}", steps),
            fmt::format("--save_freq={}", steps),
            "--output_dir=" + output(run).string(),
            "--job_name=" + run};
  }
  std::vector<std::string> on_states(const std::string& run, int steps = 20) const {
    return with(diffusion(run, "toy_state", data() / "datasets/toy_state", steps),
                {"--policy.horizon=8", "--policy.n_action_steps=4"});
  }
  /// With one camera of 96x96.
  std::vector<std::string> on_images(const std::string& run, int steps = 20) const {
    return with(
        diffusion(run, "pusht_sim", fs::path(LEROBOT_TEST_DATA) / "../../data/pusht_sim", steps),
        {"--policy.horizon=16", "--policy.n_action_steps=8",
         "--policy.spatial_softmax_num_keypoints=8"});
  }
  /// With two cameras of 96x96, of which the policy sees 40x40; groups are normalised.
  std::vector<std::string> on_two_cameras(const std::string& run, int steps) const {
    return with(diffusion(run, "toy_h264", data() / "datasets/toy_h264", steps),
                {"--policy.horizon=8", "--policy.n_action_steps=4",
                 "--policy.spatial_softmax_num_keypoints=4", "--policy.resize_shape=[44,44]",
                 "--policy.crop_ratio=0.95", "--policy.drop_n_last_frames=2"});
  }

  void expect_same_losses(const std::string& run, const std::string& other,
                          double tolerance) const {
    const auto actual = samples(run), expected = samples(other);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i]["index"], expected[i]["index"]);
      expect_close(actual[i]["loss"], expected[i]["loss"], tolerance, "loss", i + 1);
      expect_close(actual[i]["grad_norm"], expected[i]["grad_norm"], tolerance, "norm", i + 1);
    }
  }
};

TEST_F(Diffusion, TrainsOnStatesAsLeRobotWithAnExponentialMovingAverage) {
  ASSERT_EQ(train_program(with(on_states("diffusion_state"), {"--ema.enable=true"})), 0);
  expect_log("diffusion_state", 1e-6, 5e-6);
  const auto expected = lines(data() / "logs/diffusion_state.rank0.jsonl");
  std::size_t step = 0;
  for (const Json& line : lines(output("diffusion_state") / "metrics.jsonl")) {
    if (!line.contains("lr")) continue;
    expect_close(line["lr"], expected[step]["lr"], 1e-12, "lr", step + 1);
    ++step;
  }
  EXPECT_EQ(step, expected.size());

  const fs::path ours = checkpoint("diffusion_state", "000020");
  const fs::path fixture = data() / "checkpoints/diffusion_state/000020";
  for (const char* file :
       {"pretrained_model/model.safetensors", "pretrained_model_ema/model.safetensors",
        "training_state/optimizer_state.safetensors"})
    expect_tensors(ours / file, fixture / file, 1e-4);
  for (const char* folder : {"pretrained_model", "pretrained_model_ema"})
    for (const char* file : {"config.json", "policy_preprocessor.json", "policy_postprocessor.json",
                             "policy_preprocessor_step_3_normalizer_processor.safetensors",
                             "policy_postprocessor_step_0_unnormalizer_processor.safetensors"})
      EXPECT_EQ(read_text_file(ours / folder / file), read_text_file(fixture / folder / file))
          << folder << "/" << file;
  for (const char* file : {"training_step.json", "optimizer_param_groups.json",
                           "scheduler_state.json", "rng_state.safetensors"})
    EXPECT_EQ(read_text_file(ours / "training_state" / file),
              read_text_file(fixture / "training_state" / file))
        << file;
}

TEST_F(Diffusion, TrainsOnImagesAsLeRobotWithBatchNormalisationAndRandomCrops) {
  ASSERT_EQ(train_program(with(on_images("diffusion_pusht"), {"--policy.crop_shape=[84,84]"})), 0);
  expect_log("diffusion_pusht", 1e-6, 2e-5, 0, 1, 4);
  // With the statistics of batches rounding grows from step to step.
  expect_log("diffusion_pusht", 2e-3, 2e-2, 0, 5);
  const fs::path ours = checkpoint("diffusion_pusht", "000020");
  EXPECT_EQ(
      read_text_file(ours / "pretrained_model/config.json"),
      read_text_file(data() / "checkpoints/diffusion_pusht/000020/pretrained_model/config.json"));
  const auto model = checkpoint::open_tensor_file(ours / "pretrained_model/model.safetensors");
  const Json expected = read_json_file(data() / "oracles/diffusion_pusht_final.json")["model"];
  EXPECT_EQ(model->names().size(), expected.size());
  for (const auto& [name, summary] : expected.items()) {
    const at::Tensor tensor = model->tensor(name);
    ASSERT_EQ(tensor.sizes().vec(), summary["shape"].get<std::vector<std::int64_t>>()) << name;
    if (name.ends_with("num_batches_tracked")) {
      EXPECT_EQ(tensor.item<std::int64_t>(), 21) << name;  // 20 and the constructor's
    } else if (name.ends_with("running_var")) {
      expect_close(tensor.norm().item<double>(), summary["norm"], 1e-2, name.c_str(), 20);
    }
  }
}

TEST_F(Diffusion, TrainsOnResizedImagesAsLeRobotWithGroupNormalisation) {
  ASSERT_EQ(train_program(with(on_images("diffusion_pusht_gn", 6),
                               {"--policy.resize_shape=[80,88]", "--policy.crop_ratio=0.9",
                                "--policy.use_group_norm=true",
                                "--policy.noise_scheduler_type=DDIM", "--save_checkpoint=false"})),
            0);
  expect_log("diffusion_pusht_gn", 1e-5, 1e-4);
}

TEST_F(Diffusion, TrainsUnderBf16AutocastAsLeRobot) {
  ASSERT_EQ(train_program(with(on_states("diffusion_bf16", 6),
                               {"--accelerator.mixed_precision=bf16", "--save_checkpoint=false"})),
            0);
  expect_log("diffusion_bf16", 1e-2, 3e-2);
}

TEST_F(Diffusion, TrainsInTwoProcessesAsLeRobot) {
  const auto outcome = launch(2, on_states("diffusion_ddp2"));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (int rank : {0, 1}) expect_log("diffusion_ddp2", 1e-6, 5e-6, rank);
}

TEST_F(Diffusion, TrainsInTwoShardsOfTheDeclaredUnitsAsLeRobot) {
  const auto outcome = launch(2, with(on_states("diffusion_fsdp2"), {"--parallelism.dp_shard=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (int rank : {0, 1}) expect_log("diffusion_fsdp2", 1e-6, 5e-6, rank);
}

TEST_F(Diffusion, TrainsInShardsOfUnitsByClassOrSizeAndWithRecomputedBlocks) {
  ASSERT_EQ(launch(2, with(on_states("ddp", 4), {"--save_checkpoint=false"})).code, 0);
  const std::vector<std::vector<std::string>> ways{
      {"--accelerator.fsdp.wrap_modules=[\"DiffusionConditionalUnet1d\", "
       "\"DiffusionConv1dBlock\"]"},
      {"--accelerator.fsdp.min_num_params=3000"},
      {"--accelerator.fsdp.min_num_params=20000", "--accelerator.fsdp.reshard_after_forward=false"},
      {"--policy.gradient_checkpointing=true"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string run = fmt::format("shards{}", i);
    const auto outcome = launch(2, with(with(on_states(run, 4), ways[i]),
                                        {"--parallelism.dp_shard=2", "--save_checkpoint=false"}));
    ASSERT_EQ(outcome.code, 0) << outcome.text;
    expect_same_losses(run, "ddp", 2e-6);
  }
}

TEST_F(Diffusion, WithRecomputedBlocksTrainsInTwoProcesses) {
  ASSERT_EQ(launch(2, with(on_states("plain", 4), {"--save_checkpoint=false"})).code, 0);
  const auto outcome =
      launch(2, with(on_states("recomputed", 4),
                     {"--save_checkpoint=false", "--policy.gradient_checkpointing=true"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  expect_same_losses("recomputed", "plain", 1e-9);
}

TEST_F(Diffusion, WithCamerasTrainsInShardsAsInTwoProcesses) {
  const std::vector<std::string> flags{"--policy.use_group_norm=true", "--save_checkpoint=false"};
  ASSERT_EQ(launch(2, with(on_two_cameras("ddp", 2), flags)).code, 0);
  const auto shards = with(flags, {"--parallelism.dp_shard=2"});
  auto outcome = launch(2, with(on_two_cameras("declared", 2), shards));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  expect_same_losses("declared", "ddp", 1e-4);
  outcome = launch(2, with(with(on_two_cameras("by_size", 2), shards),
                           {"--accelerator.fsdp.min_num_params=3000000"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  expect_same_losses("by_size", "ddp", 1e-4);
}

TEST_F(Diffusion, SavesTheRunningStatisticsOfRankZerosBatchesInEveryLayout) {
  ASSERT_EQ(launch(2, on_two_cameras("ddp", 2)).code, 0);
  const auto outcome = launch(2, with(on_two_cameras("shards", 2), {"--parallelism.dp_shard=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  expect_same_losses("shards", "ddp", 1e-4);
  const auto model = [&](const std::string& run) {
    return checkpoint::open_tensor_file(checkpoint(run, "000002") /
                                        "pretrained_model/model.safetensors");
  };
  const auto replicas = model("ddp"), shards = model("shards");
  int counters = 0;
  for (const std::string& name : replicas->names()) {
    const at::Tensor tensor = replicas->tensor(name);
    if (name.ends_with("num_batches_tracked")) {
      EXPECT_EQ(tensor.item<std::int64_t>(), 3) << name;
      ++counters;
    } else if (name.find(".running_") != std::string::npos) {
      EXPECT_TRUE(tensor.allclose(shards->tensor(name), 1e-3, 1e-4)) << name;
    }
  }
  EXPECT_EQ(counters, 40);
}

TEST_F(Diffusion, TrainsInLowPrecisionShardsWithBatchNormalisation) {
  // Parameters are bfloat16 then, running statistics stay float32.
  const auto run = launch(2, with(on_images("run", 2), {"--parallelism.dp_shard=2",
                                                        "--accelerator.mixed_precision=bf16"}));
  ASSERT_EQ(run.code, 0) << run.text;
  const auto expected = lines(data() / "logs/diffusion_pusht.rank0.jsonl");
  // The same weights and noise, other samples in half of the batch.
  EXPECT_NEAR(samples("run")[0]["loss"].get<double>(), expected[0]["loss"].get<double>(), 0.5);
  const auto weights = checkpoint::open_tensor_file(checkpoint("run", "000002") /
                                                    "pretrained_model/model.safetensors");
  EXPECT_EQ(weights->dtype("diffusion.rgb_encoder.0.backbone.1.weight"), at::kFloat);
  EXPECT_EQ(weights->dtype("diffusion.rgb_encoder.0.backbone.1.running_var"), at::kFloat);
}

}  // namespace
}  // namespace lerobot::train
