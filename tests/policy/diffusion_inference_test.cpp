// Predictions step by step, and whole episodes, against what LeRobot computed.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/policy/diffusion_oracle.h"

namespace lerobot::policy {
namespace {

struct Case {
  const char* name;
  const char* label;  // in eval.safetensors
  const char* scheduler;
  std::int64_t steps;
};

std::unique_ptr<Policy> policy_of(const Case& c) {
  const auto config = config::read_policy_config(oracle(c.name) / "config.json", policy_types());
  auto& diffusion = dynamic_cast<DiffusionConfig&>(*config);
  diffusion.noise_scheduler_type = c.scheduler;
  diffusion.num_inference_steps = c.steps;
  seed_torch(1000);
  auto policy = make_policy(*config, false);
  policy->module().train(false);
  return policy;
}

/// Relative to the largest value, or to one.
void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const double scale = std::max(expected.abs().max().item<double>(), 1.0);
  EXPECT_LE((actual - expected).abs().max().item<double>(), tolerance * scale);
}

class DiffusionInference : public testing::TestWithParam<Case> {};

TEST_P(DiffusionInference, TakesLeRobotsStepsFromNoiseToActions) {
  const Case& c = GetParam();
  const serialization::SafetensorsFile expected(oracle(c.name) / "eval.safetensors");
  const auto of = [&](const char* what) {
    return expected.tensor(std::string(c.label) + "/" + what);
  };
  const auto policy = policy_of(c);
  const dataset::Batch batch = diffusion_batch(c.name, *policy);
  const c10::AutoGradMode no_grad(false);
  DiffusionModel& model = as_diffusion(*policy).model();
  const at::Tensor condition = model.condition(batch);
  EXPECT_TRUE(condition.allclose(expected.tensor("global_cond_eval"), 1e-5, 1e-6));

  NoiseSchedule schedule(dynamic_cast<const DiffusionConfig&>(policy->config()));
  const auto steps = schedule.inference_steps(c.steps);
  EXPECT_TRUE(at::Tensor(of("timesteps")).equal(at::tensor(steps, at::kLong)));
  const at::Tensor noise = of("noise");
  for (std::int64_t i = 0; i < c.steps; ++i) {
    const std::int64_t t = steps[static_cast<std::size_t>(i)];
    const at::Tensor sample = of("sample_in")[i];
    const at::Tensor output = model.unet()(sample, at::full({2}, t, at::kLong), condition);
    EXPECT_TRUE(output.allclose(of("model_out")[i], 1e-5, 1e-5)) << t;
    const auto [mean, deviation] = schedule.denoise(sample, of("model_out")[i], t, c.steps);
    const at::Tensor next = deviation == 0 ? mean : mean + deviation * noise[i + 1];
    // torch's square roots of single numbers are off by one bit here and there, as the machine has
    // it.
    expect_close(next, i + 1 < c.steps ? of("sample_in")[i + 1] : of("final"), 2.5e-7);
  }

  seed_torch(321);
  const at::Tensor chunk = policy->predict_action_chunk(batch);
  EXPECT_FALSE(chunk.requires_grad());
  // Without clipping every step amplifies the rounding of those before.
  expect_close(chunk, of("chunk"), 5e-4);
}

TEST_P(DiffusionInference, ActsThroughAnEpisodeAsLeRobot) {
  const Case& c = GetParam();
  const serialization::SafetensorsFile expected(oracle(c.name) / "eval.safetensors");
  const auto policy = policy_of(c);
  const dataset::Batch window = diffusion_batch(c.name, *policy);
  const at::Tensor actions = expected.tensor(std::string(c.label) + "/rollout_actions");
  for (int round = 0; round < 2; ++round) {  // the second one after reset()
    seed_torch(55);
    policy->reset();
    for (std::int64_t i = 0; i < actions.size(0); ++i) {
      dataset::Batch batch;
      for (const auto& [name, feature] : policy->config().input_features)
        batch.tensors[name] = feature.type == config::FeatureType::kVisual
                                  ? at::roll(window.at(name).select(1, -1), {3 * i}, {-1})
                                  : expected.tensor("rollout_in/" + name)[i];
      expect_close(policy->select_action(batch), actions[i], 5e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Oracles, DiffusionInference,
                         testing::Values(Case{"diffusion_env", "ddpm", "DDPM", 20},
                                         Case{"diffusion_env", "ddim", "DDIM", 20},
                                         Case{"diffusion_env", "ddpm5", "DDPM", 5},
                                         Case{"diffusion_env", "ddim5", "DDIM", 5},
                                         Case{"diffusion_env_alt", "ddpm", "DDPM", 20},
                                         Case{"diffusion_env_alt", "ddpm6", "DDPM", 6},
                                         Case{"diffusion_env_alt", "ddim6", "DDIM", 6},
                                         Case{"diffusion_camera_gn", "ddpm", "DDPM", 20},
                                         Case{"diffusion_camera_gn", "ddim5", "DDIM", 5},
                                         Case{"diffusion_camera_bn", "ddim5", "DDIM", 5},
                                         Case{"diffusion_two_cameras", "ddpm", "DDPM", 20},
                                         Case{"diffusion_shared", "ddpm", "DDPM", 20}),
                         [](const auto& info) {
                           return std::string(info.param.name) + "_" + info.param.label;
                         });

class DiffusionHeldOutLoss : public testing::TestWithParam<const char*> {};

TEST_P(DiffusionHeldOutLoss, IsLeRobotsWithNoiseFromTheSameGenerator) {
  const auto policy = oracle_policy(GetParam());
  policy->module().train(false);
  const serialization::SafetensorsFile expected(oracle(GetParam()) / "eval.safetensors");
  const dataset::Batch batch = diffusion_batch(GetParam(), *policy);
  seed_torch(123);
  const double loss = expected.tensor("eval_mode_loss").item<double>();
  EXPECT_NEAR(policy->compute_loss(batch).loss.item<double>(), loss, 2e-6 * loss);
}

INSTANTIATE_TEST_SUITE_P(Oracles, DiffusionHeldOutLoss,
                         testing::Values("diffusion_env", "diffusion_env_alt",
                                         "diffusion_camera_gn", "diffusion_camera_bn",
                                         "diffusion_two_cameras", "diffusion_shared"),
                         [](const auto& info) { return std::string(info.param); });

// --- A checkpoint at work
// -----------------------------------------------------------------------------

class DiffusionCheckpoint : public testing::TestWithParam<const char*> {};

TEST_P(DiffusionCheckpoint, OfLeRobotActsHereAsThere) {
  const auto folder =
      std::filesystem::path(LEROBOT_TEST_DATA) / "checkpoints/diffusion_state/000020" / GetParam();
  const auto config = config::read_policy_config(folder / "config.json", policy_types());
  const auto policy = make_policy(*config, false);
  load_policy_weights(*policy, folder / "model.safetensors");
  policy->module().train(false);
  const auto processors = load_processors(*config, folder, {}, nullptr);
  const serialization::SafetensorsFile expected(oracle("diffusion_state_rollout.safetensors"));
  const auto of = [&](const char* what, std::int64_t i) {
    return expected.tensor(std::string(GetParam()) + "/" + what)[i];
  };
  seed_torch(77);
  for (std::int64_t i = 0; i < 12; ++i) {
    dataset::Batch batch;
    batch.frame_index = {i};
    for (const char* name : {"observation.state", "observation.environment_state"})
      batch.tensors[name] = expected.tensor(std::string("in/") + name)[i];
    processors.preprocessor.apply(batch);
    EXPECT_TRUE(batch.at("observation.state").allclose(of("normalised_state", i), 1e-6, 1e-6));
    batch.tensors["action"] = policy->select_action(batch);
    expect_close(batch.at("action"), of("normalised_action", i), 1e-5);
    processors.postprocessor.apply(batch);
    expect_close(batch.at("action"), of("action", i), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(LiveAndAveraged, DiffusionCheckpoint,
                         testing::Values("pretrained_model", "pretrained_model_ema"),
                         [](const auto& info) { return std::string(info.param); });

// --- Queues
// ---------------------------------------------------------------------------------------

std::unique_ptr<Policy> small_policy(std::int64_t observations, std::int64_t actions) {
  DiffusionConfig config;
  config.input_features = {{"observation.state", {config::FeatureType::kState, {2}}},
                           {"observation.environment_state", {config::FeatureType::kEnv, {1}}}};
  config.output_features = {{"action", {config::FeatureType::kAction, {3}}}};
  config.n_obs_steps = observations;
  config.horizon = 8;
  config.n_action_steps = actions;
  config.down_dims = {8};
  config.diffusion_step_embed_dim = 4;
  config.num_train_timesteps = 3;
  auto policy = make_policy(config, false);
  policy->module().train(false);
  return policy;
}

dataset::Batch observation(std::int64_t number) {
  dataset::Batch batch;
  batch.tensors["observation.state"] = at::full({1, 2}, static_cast<double>(number), at::kFloat);
  batch.tensors["observation.environment_state"] = at::full({1, 1}, 0.5, at::kFloat);
  return batch;
}

TEST(DiffusionQueues, HoldOneObservationWithOrWithoutATimeAxisOfItsImages) {
  DiffusionConfig config;
  config.input_features = {{"observation.state", {config::FeatureType::kState, {2}}},
                           {"observation.image", {config::FeatureType::kVisual, {3, 40, 40}}}};
  config.output_features = {{"action", {config::FeatureType::kAction, {3}}}};
  config.n_obs_steps = 1;
  config.horizon = 8;
  config.down_dims = {8};
  config.num_train_timesteps = 2;
  config.pretrained_backbone_weights.reset();
  const auto policy = make_policy(config, false);
  policy->module().train(false);
  const at::Tensor image = at::full({1, 3, 40, 40}, 0.5);
  dataset::Batch batch;
  batch.tensors["observation.state"] = at::full({1, 1, 2}, 1.0);
  batch.tensors["observation.image"] = image;  // as a window of one frame of a video is
  seed_torch(5);
  const at::Tensor without_axis = policy->predict_action_chunk(batch);
  batch.tensors["observation.image"] = image.unsqueeze(1);
  seed_torch(5);
  EXPECT_TRUE(policy->predict_action_chunk(batch).equal(without_axis));
  batch.tensors["observation.state"] = at::full({1, 2}, 1.0);
  batch.tensors["observation.image"] = image;
  seed_torch(5);
  EXPECT_TRUE(policy->select_action(batch).equal(without_axis.select(1, 0)));
}

TEST(DiffusionQueues, GiveFewerActionsWhereTheHorizonEnds) {
  EXPECT_EQ(small_policy(2, 16)
                ->predict_action_chunk([] {
                  dataset::Batch window;
                  window.tensors["observation.state"] = at::full({1, 2, 2}, 1.0);
                  window.tensors["observation.environment_state"] = at::full({1, 2, 1}, 1.0);
                  return window;
                }())
                .sizes()
                .vec(),
            (std::vector<std::int64_t>{1, 7, 3}));
}

TEST(DiffusionQueues, KeepTheLatestObservationsAlsoWhenNothingIsPredicted) {
  const auto policy = small_policy(3, 4);
  for (std::int64_t i = 0; i < 3; ++i) policy->select_action(observation(i));
  // What a prediction sees now is not the batch but the last three observations.
  seed_torch(5);
  const at::Tensor seen = policy->predict_action_chunk(observation(99));
  policy->reset();
  dataset::Batch window;
  window.tensors["observation.state"] =
      at::arange(3, at::kFloat).view({1, 3, 1}).expand({1, 3, 2}).contiguous();
  window.tensors["observation.environment_state"] = at::full({1, 3, 1}, 0.5, at::kFloat);
  seed_torch(5);
  EXPECT_TRUE(policy->predict_action_chunk(window).equal(seen));
}

TEST(DiffusionQueues, BeginWithCopiesOfTheFirstObservation) {
  const auto policy = small_policy(2, 4);
  seed_torch(5);
  const at::Tensor first = policy->select_action(observation(7));
  policy->reset();
  dataset::Batch window;
  window.tensors["observation.state"] = at::full({1, 2, 2}, 7.0, at::kFloat);
  window.tensors["observation.environment_state"] = at::full({1, 2, 1}, 0.5, at::kFloat);
  seed_torch(5);
  EXPECT_TRUE(policy->predict_action_chunk(window).select(1, 0).equal(first));
}

}  // namespace
}  // namespace lerobot::policy
