// Loss, activations, gradients and the updates that follow against what LeRobot computed.
#include <cmath>

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "lerobot/optim/optimizer.h"
#include "tests/policy/diffusion_oracle.h"
#include "tests/support/error_of.h"

namespace lerobot::policy {
namespace {

using testing::HasSubstr;

std::unique_ptr<optim::Optimizer> preset_optimizer(Policy& policy) {
  std::vector<optim::Group> groups;
  for (auto& group : policy.parameter_groups())
    groups.push_back({.parameters = std::move(group.parameters)});
  return optim::make_optimizer(policy.config().optimizer_preset(), std::move(groups));
}

/// Activations of modules that exist here, too: what has no parameters is no module.
void expect_activations(const Expected& expected, const Listener& listener) {
  int compared = 0;
  for (const std::string& key : expected.names()) {
    if (!key.starts_with("act/")) continue;
    std::string module = key.substr(4);
    // The activation is the block's last layer.
    if (const auto at = module.find(".block.2"); at != std::string::npos) module.resize(at);
    const at::Tensor heard = listener.heard(module);
    if (!heard.defined()) continue;
    expected.expect_near(key, heard, 1e-5, 1e-3);
    ++compared;
  }
  EXPECT_GE(compared, 15);
}

/// Whether the gradient is rounding noise, of which Adam makes full steps all the same: of the bias
/// of the softmax's scores, and of biases before a normalisation whose groups are single channels.
bool follows_rounding(const std::string& parameter, const DiffusionConfig& config) {
  return parameter.ends_with("pool.nets.bias") ||
         (config.n_groups == config.down_dims[0] && parameter.ends_with("block.0.bias"));
}

class DiffusionTraining : public testing::TestWithParam<const char*> {};

TEST_P(DiffusionTraining, GivesLeRobotsLossGradientsAndNextThreeUpdates) {
  const std::string name = GetParam();
  const Expected expected(name);
  const Json meta = read_json_file(oracle(name) / "meta.json");
  const auto policy = oracle_policy(name);
  const dataset::Batch batch = diffusion_batch(name, *policy);
  const auto optimizer = preset_optimizer(*policy);
  const nn::NamedTensors parameters = policy->module().named_parameters();

  policy->module().train();
  seed_torch(123);
  TrainOutput output;
  {
    const Listener listener(policy->module());
    output = policy->compute_loss(batch);
    expect_activations(expected, listener);
  }
  output.loss.backward();
  EXPECT_TRUE(output.metrics.empty());
  const double loss = meta["loss"].get<double>();
  EXPECT_NEAR(output.loss.item<double>(), loss, 1e-6 * loss);
  const auto& config = dynamic_cast<const DiffusionConfig&>(policy->config());
  for (const auto& [parameter_name, parameter] : parameters) {
    ASSERT_TRUE(parameter.grad().defined()) << parameter_name;
    const double floor = follows_rounding(parameter_name, config) ? 1e-2 : 1e-3;
    expected.expect_near("grad/" + parameter_name, parameter.grad(), 2e-5, floor);
  }

  const auto update = [&] {
    const double norm = optim::clip_grad_norm(parameters, 10.0).item<double>();
    optimizer->step();
    optimizer->zero_grad();
    return norm;
  };
  const double norm = meta["grad_norm"].get<double>();
  EXPECT_NEAR(update(), norm, 1e-5 * norm);
  for (const auto& [parameter_name, parameter] : parameters) {
    // Where a gradient is rounding noise its sign, and so a step of at most the rate, is arbitrary.
    const double scale = std::max(parameter.abs().max().item<double>(), 1e-3);
    expected.expect_near("param_after_step/" + parameter_name, parameter.detach(),
                         1e-6 + 2.1 * config.optimizer_lr / scale, 1e-3);
  }
  for (const auto& [buffer_name, buffer] : policy->module().named_buffers())
    if (const std::string key = "buffer_after_step/" + buffer_name; expected.contains(key))
      expected.expect_near(key, buffer.to(at::kDouble), 1e-6, 1e-3);

  for (const Json& step : meta["steps_2_3"]) {
    const at::Tensor next = policy->compute_loss(batch).loss;
    next.backward();
    const double expected_loss = step["loss"].get<double>();
    EXPECT_NEAR(next.item<double>(), expected_loss, 1e-5 * expected_loss) << step["step"];
    const double expected_norm = step["grad_norm"].get<double>();
    EXPECT_NEAR(update(), expected_norm, 1e-4 * expected_norm) << step["step"];
  }
  for (const auto& [parameter_name, parameter] : parameters) {
    const std::string key = "param_after_step3/" + parameter_name;
    if (!expected.contains(key) || follows_rounding(parameter_name, config)) continue;
    expected.expect_near(key, parameter.detach(), 1e-4, 1e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Oracles, DiffusionTraining,
                         testing::Values("diffusion_env", "diffusion_env_alt",
                                         "diffusion_camera_gn", "diffusion_camera_bn",
                                         "diffusion_two_cameras", "diffusion_shared"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DiffusionTraining, DrawsCropsThenNoiseThenSteps) {
  const Json meta = read_json_file(oracle("diffusion_two_cameras") / "meta.json");
  const Expected expected("diffusion_two_cameras");
  seed_torch(123);
  std::vector<std::int64_t> crops;
  at::Tensor noise, steps;
  for (const Json& call : meta["rng_calls_training"]) {
    const auto shape = call[1].get<std::vector<std::int64_t>>();
    if (call[0] == "randn")
      noise = at::randn(shape);
    else
      steps =
          at::randint(call[2].get<std::int64_t>(), call[3].get<std::int64_t>(), shape, at::kLong);
    if (call[0] == "randint" && shape[0] == 1) crops.push_back(steps.item<std::int64_t>());
  }
  const at::Tensor places = expected.tensor("crop").to(at::kLong);
  ASSERT_EQ(static_cast<std::int64_t>(crops.size()), places.numel());
  for (std::size_t i = 0; i < crops.size(); ++i)
    EXPECT_EQ(crops[i], places[static_cast<std::int64_t>(i)].item<std::int64_t>());
  EXPECT_TRUE(noise.equal(expected.tensor("eps")));
  EXPECT_TRUE(steps.equal(expected.tensor("timesteps")));
  // The loss consumes exactly these draws.
  const at::Tensor after = at::randn({4});
  const auto policy = oracle_policy("diffusion_two_cameras");
  const dataset::Batch batch = diffusion_batch("diffusion_two_cameras", *policy);
  seed_torch(123);
  policy->compute_loss(batch);
  EXPECT_TRUE(at::randn({4}).equal(after));
}

TEST(DiffusionTraining, WithRecomputedBlocksHasTheSameGradientsBitForBit) {
  std::vector<at::Tensor> gradients[2];
  for (const bool recomputes : {false, true}) {
    const auto read =
        config::read_policy_config(oracle("diffusion_env") / "config.json", policy_types());
    dynamic_cast<DiffusionConfig&>(*read).gradient_checkpointing = recomputes;
    seed_torch(1000);
    const auto policy = make_policy(*read, false);
    seed_torch(123);
    const at::Tensor loss = policy->compute_loss(diffusion_batch("diffusion_env", *policy)).loss;
    EXPECT_FLOAT_EQ(loss.item<float>(), 1.1495202779769897F);
    loss.backward();
    for (const auto& [name, parameter] : policy->module().named_parameters())
      gradients[recomputes ? 1 : 0].push_back(parameter.grad());
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (std::size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(gradients[0][i].equal(gradients[1][i])) << i;
}

TEST(DiffusionTraining, OfPaddedSamplesAloneHasALossOfZero) {
  const auto policy = oracle_policy("diffusion_env_alt");  // masks padding
  dataset::Batch batch = diffusion_batch("diffusion_env_alt", *policy);
  batch.tensors["action_is_pad"].fill_(true);
  EXPECT_EQ(policy->compute_loss(batch).loss.item<float>(), 0.0F);
}

TEST(DiffusionPolicy, NamesATensorOfAnotherShape) {
  const auto policy = oracle_policy("diffusion_two_cameras");
  const dataset::Batch batch = diffusion_batch("diffusion_two_cameras", *policy);
  const auto loss_with = [&](const std::string& name, const at::Tensor& tensor) {
    dataset::Batch changed = batch;
    changed.tensors[name] = tensor;
    return error_of([&] { policy->compute_loss(changed); });
  };
  EXPECT_EQ(loss_with("action", batch.at("action").narrow(1, 0, 5)),
            "action: expected a batch of actions [B, 8, 3], found [2, 5, 3]");
  EXPECT_EQ(loss_with("observation.state", batch.at("observation.state").select(1, 0)),
            "observation.state: expected a batch of observations [B, 2, 4], found [2, 4]");
  EXPECT_EQ(loss_with("observation.environment_state", at::zeros({2, 2, 6})),
            "observation.environment_state: expected a batch of observations [B, 2, 5], found "
            "[2, 2, 6]");
  EXPECT_EQ(loss_with("observation.images.wrist", at::zeros({2, 3, 96, 96})),
            "observation.images.wrist: expected a batch of observations [B, 2, 3, height, width], "
            "found [2, 3, 96, 96]");
  const auto uncropped = oracle_policy("diffusion_camera_bn");
  dataset::Batch small = diffusion_batch("diffusion_camera_bn", *uncropped);
  small.tensors["observation.images.front"] = at::zeros({2, 2, 3, 64, 80});
  EXPECT_THAT(error_of([&] { uncropped->compute_loss(small); }),
              HasSubstr("images of 64x80 pixels: this policy was made for 96x96"));
}

}  // namespace
}  // namespace lerobot::policy
