// DDP against one process that trains on everybody's samples.
#include "lerobot/distributed/replicated_model.h"

#include <functional>
#include <memory>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>

#include "lerobot/distributed/whole_model.h"
#include "lerobot/optim/optimizer.h"
#include "tests/distributed/toy_policy.h"
#include "tests/support/error_of.h"
#include "tests/support/ranks.h"

namespace lerobot::distributed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<ToyPolicy> make_policy(bool unused_is_trained, std::uint64_t seed = 1) {
  at::manual_seed(seed);
  auto policy = std::make_unique<ToyPolicy>();
  for (auto& [name, parameter] : policy->module().named_parameters())
    if (name.ends_with("unused")) parameter.requires_grad_(unused_is_trained);
  return policy;
}

struct Case {
  config::DdpConfig options;
  std::int64_t accumulation = 1;
};

void expect_close(const nn::NamedTensors& actual, const nn::NamedTensors& expected,
                  std::int64_t step) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(at::allclose(actual[i].second, expected[i].second, 1e-5, 1e-6))
        << actual[i].first << " after step " << step;
}

void train_beside_one_process(const World& world, const Case& c) {
  const bool unused_is_trained = c.options.find_unused_parameters || c.options.static_graph;
  // Ranks begin with weights of their own: all have rank 0's after the start.
  const auto policy =
      make_policy(unused_is_trained, static_cast<std::uint64_t>(1 + 10 * world.rank()));
  const auto reference_policy = make_policy(unused_is_trained);
  config::AcceleratorConfig options;
  options.gradient_accumulation.steps = c.accumulation;
  options.ddp = c.options;
  const auto model = make_replicated_model(*policy, world, options);
  const auto reference = make_whole_model(*reference_policy);
  expect_close(model->parameters(), reference->parameters(), 0);
  const auto adam =
      optim::make_optimizer(config::AdamWConfig{.lr = 1e-2}, {{.parameters = model->parameters()}});
  const auto reference_adam = optim::make_optimizer(config::AdamWConfig{.lr = 1e-2},
                                                    {{.parameters = reference->parameters()}});
  for (std::int64_t step = 0; step < 4 * c.accumulation; ++step) {
    const bool updates = (step + 1) % c.accumulation == 0;
    dataset::Batch own = toy_batch(step, world.rank()), all = toy_batch_of_all(step, world.size());
    const auto share = static_cast<double>(c.accumulation);
    model->backward(model->compute_loss(own, updates).loss / share);
    reference->backward(reference->compute_loss(all, updates).loss / share);
    if (!updates) continue;
    const at::Tensor norm = model->clip_grad_norm(0.5);
    EXPECT_TRUE(at::allclose(norm, reference->clip_grad_norm(0.5), 1e-5)) << "step " << step;
    adam->step();
    adam->zero_grad();
    reference_adam->step();
    reference_adam->zero_grad();
    expect_close(model->parameters(), reference->parameters(), step);
  }
}

class ReplicatedModel : public ::testing::TestWithParam<std::pair<std::string, Case>> {};

TEST_P(ReplicatedModel, EqualsOneProcessWithTheSameGlobalBatchOver2Ranks) {
  run_ranks(2, [](const World& world) { train_beside_one_process(world, GetParam().second); });
}

TEST_P(ReplicatedModel, EqualsOneProcessWithTheSameGlobalBatchOver3Ranks) {
  run_ranks(3, [](const World& world) { train_beside_one_process(world, GetParam().second); });
}

INSTANTIATE_TEST_SUITE_P(
    Options, ReplicatedModel,
    ::testing::Values(
        std::pair{"Defaults", Case{}},
        std::pair{"BucketViews", Case{.options = {.gradient_as_bucket_view = true}}},
        std::pair{"NothingUnused", Case{.options = {.find_unused_parameters = false}}},
        std::pair{"StaticGraph", Case{.options = {.static_graph = true}}},
        std::pair{"StaticGraphWithoutSearch",
                  Case{.options = {.find_unused_parameters = false, .static_graph = true}}},
        std::pair{"Accumulation", Case{.options = {}, .accumulation = 3}},
        std::pair{"AccumulationInBucketViews",
                  Case{.options = {.gradient_as_bucket_view = true}, .accumulation = 2}},
        std::pair{"AccumulationOfAStaticGraph",
                  Case{.options = {.static_graph = true}, .accumulation = 2}}),
    [](const auto& info) { return info.param.first; });

TEST(ReplicatedModelOfTwo, KeepsGradientsToItselfUntilTheLastMicroBatch) {
  run_ranks(2, [](const World& world) {
    const auto policy = make_policy(true), alone = make_policy(true);
    const auto model = make_replicated_model(*policy, world, {});
    const auto reference = make_whole_model(*alone);
    dataset::Batch batch = toy_batch(1, world.rank()), same = toy_batch(1, world.rank());
    model->backward(model->compute_loss(batch, /*synchronise=*/false).loss);
    reference->backward(reference->compute_loss(same, false).loss);
    for (std::size_t i = 0; i < model->parameters().size(); ++i) {
      const at::Tensor gradient = model->parameters()[i].second.grad();
      const at::Tensor expected = reference->parameters()[i].second.grad();
      ASSERT_EQ(gradient.defined(), expected.defined());
      EXPECT_TRUE(!expected.defined() || gradient.equal(expected));
    }
  });
}

TEST(ReplicatedModelOfTwo, MeasuresWithoutGradientsWithoutTheOtherRank) {
  run_ranks(2, [](const World& world) {
    const auto policy = make_policy(true);
    const auto model = make_replicated_model(*policy, world, {});
    if (!world.is_main()) return;
    const c10::NoGradGuard no_grad;
    dataset::Batch batch = toy_batch(1, 0);
    EXPECT_TRUE(model->compute_loss(batch, true).loss.isfinite().item().toBool());
  });
}

TEST(ReplicatedModelOfTwo, RefusesRanksWithDifferentModels) {
  run_ranks(2, [](const World& world) {
    const auto policy = make_policy(true);
    if (!world.is_main()) policy->net().tie(at::ones({2}));
    EXPECT_THAT(error_of([&] { make_replicated_model(*policy, world, {}); }),
                HasSubstr("start of DDP"));
  });
}

TEST(ReplicatedModelOfTwo, NamesTheRankThatIsGone) {
  const auto ends = ends_of_ranks({.dp_replicate = 2}, [](const World& world) {
    const auto policy = make_policy(true);
    const auto model = make_replicated_model(*policy, world, {});
    if (!world.is_main()) throw Error("no more memory");
    dataset::Batch batch = toy_batch(1, 0);
    model->backward(model->compute_loss(batch, true).loss);
  });
  EXPECT_THAT(ends[0].error, AllOf(HasSubstr("rank 1 "), HasSubstr("failed: no more memory")));
}

}  // namespace
}  // namespace lerobot::distributed
