// FSDP and HSDP against one process that trains on everybody's samples.
#include "lerobot/distributed/sharded_model.h"

#include <functional>
#include <memory>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "lerobot/optim/optimizer.h"
#include "tests/distributed/toy_policy.h"
#include "tests/support/ranks.h"

namespace lerobot::distributed {
namespace {

std::unique_ptr<ToyPolicy> make_policy(const std::function<void(ToyPolicy&)>& change = nullptr) {
  at::manual_seed(1);
  auto policy = std::make_unique<ToyPolicy>();
  if (change) change(*policy);
  return policy;
}

std::unique_ptr<optim::Optimizer> make_adam(nn::NamedTensors parameters) {
  std::erase_if(parameters, [](const auto& p) { return !p.second.requires_grad(); });
  return optim::make_optimizer(config::AdamWConfig{.lr = 1e-2}, {{.parameters = parameters}});
}

/// This rank's rows of a whole tensor.
at::Tensor rows_of(const at::Tensor& whole, const LocalTensor& local) {
  return local.divided ? whole.narrow(0, local.first_row, local.tensor.size(0)) : whole;
}

struct Case {
  config::AcceleratorConfig options;
  std::int64_t accumulation = 1;
  double max_norm = 0.5;
  bool saves_in_the_middle = false;
  std::function<void(ToyPolicy&)> change;
};

void expect_gradients(const std::vector<LocalTensor>& gradients, const nn::NamedTensors& expected) {
  auto next = gradients.begin();
  for (const auto& [name, parameter] : expected) {
    if (!parameter.grad().defined()) continue;
    ASSERT_NE(next, gradients.end());
    EXPECT_EQ(next->name, name);
    EXPECT_TRUE(at::allclose(next->tensor, rows_of(parameter.grad(), *next), 1e-5, 1e-6)) << name;
    ++next;
  }
  EXPECT_EQ(next, gradients.end());
}

/// Trains the same policy divided and whole, and compares losses, norms and values at each update.
void train_beside_one_process(const World& world, const Case& c) {
  const auto reference = make_policy(c.change);
  const auto policy = make_policy(c.change);
  const auto model = make_sharded_model(*policy, world, c.options);
  const auto adam = make_adam(model->parameters());
  nn::NamedTensors whole = reference->module().named_parameters();
  const auto reference_adam = make_adam(whole);

  for (std::int64_t step = 0; step < 4 * c.accumulation; ++step) {
    const bool last = (step + 1) % c.accumulation == 0;
    dataset::Batch batch = toy_batch(step, world.rank());
    const auto output = model->compute_loss(batch, last);
    model->backward(output.loss / static_cast<double>(c.accumulation));
    const auto expected = reference->compute_loss(toy_batch_of_all(step, world.size()));
    (expected.loss / static_cast<double>(c.accumulation)).backward();
    at::Tensor loss = output.loss.detach().clone();
    world.all().all_reduce(loss, Reduction::kAverage).wait();
    EXPECT_NEAR(loss.item<double>(), expected.loss.item<double>(), 1e-5) << "step " << step;
    if (!last) {
      if (c.saves_in_the_middle) expect_gradients(model->accumulated_gradients(), whole);
      continue;
    }

    const double norm = model->clip_grad_norm(c.max_norm).item<double>();
    const double expected_norm = optim::clip_grad_norm(whole, c.max_norm).item<double>();
    EXPECT_NEAR(norm, expected_norm, 1e-5 * expected_norm) << "step " << step;
    adam->step();
    adam->zero_grad();
    reference_adam->step();
    reference_adam->zero_grad();
    const auto state = model->state();
    const auto expected_state = reference->module().state_dict();
    ASSERT_EQ(state.size(), expected_state.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(state[i].name, expected_state[i].first);
      EXPECT_EQ(state[i].global_size, expected_state[i].second.sizes().vec());
      EXPECT_TRUE(
          at::allclose(state[i].tensor, rows_of(expected_state[i].second, state[i]), 1e-5, 1e-6))
          << state[i].name << " after step " << step;
    }
  }
  EXPECT_EQ(adam->state().size(), reference_adam->state().size());
}

void expect_equal_to_one_process(Degrees degrees, const Case& c = {}) {
  run_ranks(degrees, [&](const World& world) { train_beside_one_process(world, c); });
}

TEST(ShardedModel, TwoShardsTrainLikeOneProcess) { expect_equal_to_one_process({1, 2}); }

TEST(ShardedModel, ThreeShardsTrainLikeOneProcess) { expect_equal_to_one_process({1, 3}); }

TEST(ShardedModel, FourShardsTrainLikeOneProcess) { expect_equal_to_one_process({1, 4}); }

TEST(ShardedModel, TwoReplicasOfTwoShardsTrainLikeOneProcess) {
  expect_equal_to_one_process({2, 2});
}

TEST(ShardedModel, UnitsThatStayWholeAfterForwardTrainAlike) {
  Case c;
  c.options.fsdp.reshard_after_forward = false;
  expect_equal_to_one_process({1, 2}, c);
}

TEST(ShardedModel, AccumulatedGradientsAreThoseOfTheLargerBatch) {
  Case c;
  c.accumulation = 3;
  expect_equal_to_one_process({1, 2}, c);
  expect_equal_to_one_process({2, 2}, c);
}

TEST(ShardedModel, GradientsSavedInTheMiddleOfAnUpdateAreTheAveragesSoFar) {
  Case c;
  c.accumulation = 3;
  c.saves_in_the_middle = true;
  expect_equal_to_one_process({2, 2}, c);
  c.options.fsdp.ignored_modules = R"(net\.blocks\.1)";
  expect_equal_to_one_process({1, 2}, c);
}

TEST(ShardedModel, UnitsBySizeNestAndTrainAlike) {
  Case c;
  c.options.fsdp.min_num_params = 60;
  expect_equal_to_one_process({1, 3}, c);
}

TEST(ShardedModel, SingleLayersTrainAlikeAsUnits) {
  Case c;
  c.options.fsdp.wrap_modules = std::vector<std::string>{"Linear"};
  expect_equal_to_one_process({1, 2}, c);
}

TEST(ShardedModel, IgnoredModulesAreAveragedToo) {
  Case c;
  c.options.fsdp.ignored_modules = R"(net\.blocks\.1)";
  expect_equal_to_one_process({1, 2}, c);
  expect_equal_to_one_process({2, 2}, c);
}

TEST(ShardedModel, ParametersKeptInHostMemoryTrainAlike) {
  Case c;
  c.options.fsdp.cpu_offload = true;
  expect_equal_to_one_process({1, 2}, c);
}

TEST(ShardedModel, FrozenParametersAreDividedAndKeepTheirValues) {
  Case c;
  c.change = [](ToyPolicy& policy) {
    for (auto& [name, parameter] : policy.module().named_parameters())
      if (name.find(".up.") != std::string::npos || name.starts_with("net.blocks.1."))
        parameter.set_requires_grad(false);
  };
  expect_equal_to_one_process({1, 2}, c);
}

/// Bytes of the module's own parameters that are there now.
std::size_t whole_bytes(ToyPolicy& policy) {
  std::size_t bytes = 0;
  for (const auto& [name, parameter] : policy.module().named_parameters())
    if (parameter.dim() > 0) bytes += parameter.storage().nbytes();
  return bytes;
}

TEST(ShardedModel, BetweenStepsNothingButShardsIsHeld) {
  run_ranks({1, 2}, [](const World& world) {
    const auto policy = make_policy();
    const auto model = make_sharded_model(*policy, world, {});
    EXPECT_EQ(whole_bytes(*policy), 0U);
    for (std::int64_t step = 0; step < 2; ++step) {
      dataset::Batch batch = toy_batch(step, world.rank());
      model->backward(model->compute_loss(batch, true).loss);
      EXPECT_EQ(whole_bytes(*policy), 0U);
      for (const auto& [name, parameter] : policy->module().named_parameters())
        EXPECT_TRUE(parameter.dim() == 0 || !parameter.grad().defined()) << name;
    }
    std::int64_t held = 0, all = 0;
    for (const auto& [name, shard] : model->parameters()) held += shard.numel();
    for (const auto& [name, parameter] : policy->module().named_parameters())
      all += parameter.numel();
    EXPECT_LT(held, all * 6 / 10);
  });
}

TEST(ShardedModel, UnitsAreWholeOnlyWhileTheyAreNeeded) {
  run_ranks({1, 2}, [](const World& world) {
    const auto policy = make_policy();
    const auto model = make_sharded_model(*policy, world, {});
    const auto modules = policy->module().named_modules();
    const auto bytes_of = [&](const std::string& wanted) {
      std::size_t bytes = 0;
      for (const auto& [name, module] : modules)
        if (name == wanted)
          for (const auto& [below, parameter] : module->named_parameters())
            bytes += parameter.storage().nbytes();
      return bytes;
    };
    for (std::int64_t step = 0; step < 2; ++step) {
      dataset::Batch batch = toy_batch(step, world.rank());
      const auto output = model->compute_loss(batch, true);
      EXPECT_EQ(bytes_of("net.blocks.1"), 0U) << "freed after forward";
      EXPECT_EQ(bytes_of("net.blocks.2"), 0U) << "freed after forward";
      EXPECT_GT(bytes_of("net.head"), 0U) << "the root waits for backward";
      model->backward(output.loss);
    }
  });
}

TEST(ShardedModel, AnEvaluationBetweenStepsChangesNothing) {
  run_ranks({1, 2}, [](const World& world) {
    const auto policy = make_policy();
    const auto reference = make_policy();
    const auto model = make_sharded_model(*policy, world, {});
    for (std::int64_t step = 0; step < 3; ++step) {
      dataset::Batch held_out = toy_batch(50 + step, world.rank());
      {
        const c10::NoGradGuard no_grad;
        EXPECT_NEAR(model->compute_loss(held_out, false).loss.item<double>(),
                    reference->compute_loss(toy_batch(50 + step, world.rank())).loss.item<double>(),
                    1e-6);
      }
      EXPECT_EQ(whole_bytes(*policy), 0U);
      dataset::Batch batch = toy_batch(step, world.rank());
      model->backward(model->compute_loss(batch, true).loss);
    }
  });
}

TEST(ShardedModel, LowPrecisionComputesInBf16AndKeepsFloat32Shards) {
  run_ranks({1, 2}, [](const World& world) {
    config::AcceleratorConfig options;
    options.mixed_precision = "bf16";
    const auto policy = make_policy();
    const auto reference = make_policy();
    const auto model = make_sharded_model(*policy, world, options);
    dataset::Batch batch = toy_batch(0, world.rank());
    const auto output = model->compute_loss(batch, true);
    EXPECT_EQ(output.loss.scalar_type(), at::kBFloat16);
    model->backward(output.loss);
    const auto expected = reference->compute_loss(toy_batch_of_all(0, world.size()));
    expected.loss.backward();
    nn::NamedTensors whole = reference->module().named_parameters();
    EXPECT_NEAR(model->clip_grad_norm(0).item<double>(), optim::grad_norm(whole).item<double>(),
                0.03 * optim::grad_norm(whole).item<double>());
    for (const auto& [name, shard] : model->parameters()) {
      EXPECT_EQ(shard.scalar_type(), at::kFloat) << name;
      EXPECT_TRUE(!shard.grad().defined() || shard.grad().scalar_type() == at::kFloat) << name;
    }
  });
}

}  // namespace
}  // namespace lerobot::distributed
