// Loss, gradients and one optimizer step against what LeRobot computed.
#include <cmath>
#include <map>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "tests/policy/act_oracle.h"

namespace lerobot::policy {
namespace {

class ActTraining : public testing::TestWithParam<const char*> {};

TEST_P(ActTraining, GivesLeRobotsLossGradientsAndNextWeights) {
  const std::string name = GetParam();
  const Expected expected(name);
  const Json meta = read_json_file(oracle(name) / "meta.json");
  const auto policy = oracle_policy(name);
  const dataset::Batch batch = oracle_batch(name);

  policy->module().train();
  seed_torch(123);
  const TrainOutput output = policy->compute_loss(batch);
  output.loss.backward();

  const double loss = meta["loss"].get<double>();
  EXPECT_NEAR(output.loss.item<double>(), loss, 1e-5 * loss);
  ASSERT_EQ(output.metrics.size(), meta["info"].size());
  for (const auto& [metric, value] : output.metrics) {
    const double reference = meta["info"][metric].get<double>();
    EXPECT_NEAR(value.item<double>(), reference, 1e-5 * reference) << metric;
    EXPECT_FALSE(value.requires_grad());
  }

  double squared = 0;
  for (const auto& [parameter_name, parameter] : policy->module().named_parameters()) {
    ASSERT_TRUE(parameter.grad().defined()) << parameter_name;
    // Some gradients are zero but for rounding (a key's bias moves all scores alike).
    expected.expect_near("grad/" + parameter_name, parameter.grad(), 1e-4, 1e-3);
    squared += std::pow(norm_of(parameter.grad()), 2);
  }
  const double norm = meta["grad_norm"].get<double>();
  EXPECT_NEAR(std::sqrt(squared), norm, 1e-4 * norm);

  // The first AdamW step after clipping: the moments are the gradient's, up to their bias.
  const ActConfig& config = dynamic_cast<const ActConfig&>(policy->config());
  const double clip = std::min(1.0, 10.0 / (std::sqrt(squared) + 1e-6));
  for (const auto& [parameter_name, parameter] : policy->module().named_parameters()) {
    const at::Tensor gradient = parameter.grad() * clip;
    const at::Tensor update = gradient / (gradient.abs() + 1e-8) * config.optimizer_lr;
    const at::Tensor after =
        parameter.detach() * (1.0 - config.optimizer_lr * config.optimizer_weight_decay) - update;
    // Where a gradient is rounding noise its sign, and so the step of at most lr, is arbitrary.
    const double scale = std::max(after.abs().max().item<double>(), 1e-3);
    expected.expect_near("param_after_step/" + parameter_name, after,
                         1e-6 + 2.1 * config.optimizer_lr / scale, 1e-3);
  }
}

TEST_P(ActTraining, HeldOutLossAndActionsAreLeRobots) {
  const std::string name = GetParam();
  const serialization::SafetensorsFile expected(oracle(name) / "eval.safetensors");
  const auto policy = oracle_policy(name);
  const dataset::Batch batch = oracle_batch(name);

  const at::Tensor chunk = policy->predict_action_chunk(batch);
  EXPECT_FALSE(policy->module().is_training());
  EXPECT_TRUE(chunk.allclose(expected.tensor("chunk"), 1e-5, 1e-5));

  policy->reset();
  const at::Tensor select = expected.tensor("select");
  for (std::int64_t i = 0; i < select.size(0); ++i)
    EXPECT_TRUE(policy->select_action(batch).allclose(select[i], 1e-5, 1e-5)) << i;

  const TrainOutput output = policy->compute_loss(batch);
  const double loss = expected.tensor("eval_mode_loss").item<double>();
  EXPECT_NEAR(output.loss.item<double>(), loss, 1e-5 * loss);
  ASSERT_EQ(output.metrics.size(), 1);
  EXPECT_EQ(output.metrics[0].first, "l1_loss");
}

INSTANTIATE_TEST_SUITE_P(Oracles, ActTraining,
                         testing::Values("act_base", "act_prenorm_env", "act_novae", "act_dropout"),
                         [](const auto& info) { return std::string(info.param); });

// --- Parts
// ----------------------------------------------------------------------------------------

TEST(ActPositions, AreLeRobots) {
  const serialization::SafetensorsFile expected(oracle("act_misc.safetensors"));
  EXPECT_TRUE(sinusoidal_positions(10, 32).equal(expected.tensor("sin1d_10x32")));
  const at::Tensor map = expected.tensor("sin2d_dim16_h3w5");
  EXPECT_TRUE(
      sinusoidal_positions_2d(3, 5, 16).allclose(map.flatten(2)[0].transpose(0, 1), 1e-6, 1e-6));
}

TEST(ActTemporalEnsembler, AveragesAsLeRobot) {
  const serialization::SafetensorsFile expected(oracle("act_misc.safetensors"));
  const at::Tensor in = expected.tensor("te_in");
  const at::Tensor out = expected.tensor("te_out");
  ActTemporalEnsembler ensembler(0.01, in.size(2));
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t i = 0; i < in.size(0); ++i)
      EXPECT_TRUE(ensembler.update(in[i]).allclose(out[i], 1e-6, 1e-7)) << i;
    ensembler.reset();
  }
}

TEST(ActPolicy, RefusesActionsOfAnotherShapeByName) {
  const auto policy = oracle_policy("act_prenorm_env");
  dataset::Batch batch = oracle_batch("act_prenorm_env");
  batch.tensors["action"] = batch.tensors["action"].narrow(1, 0, 5);
  try {
    policy->compute_loss(batch);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "action: expected a batch of chunks [B, 6, 3], found [2, 5, 3]");
  }
}

TEST(ActPolicy, NamesItsWrapUnits) {
  const auto policy = oracle_policy("act_prenorm_env");
  std::map<std::string, int> classes;
  for (const auto& [name, module] : policy->module().named_modules())
    ++classes[module->class_name()];
  EXPECT_EQ(policy->wrap_modules(),
            (std::vector<std::string>{"ACTEncoderLayer", "ACTDecoderLayer"}));
  EXPECT_EQ(classes["ACTEncoderLayer"], 4);
  EXPECT_EQ(classes["ACTDecoderLayer"], 2);
}

}  // namespace
}  // namespace lerobot::policy
