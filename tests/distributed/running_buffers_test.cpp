// Buffers that forward changes, as batch normalisation's statistics are: in DDP every rank has rank
// 0's after each update, in FSDP every rank its own.
#include <memory>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/distributed/training_model.h"
#include "lerobot/policy/policy.h"
#include "tests/support/ranks.h"

namespace lerobot::distributed {
namespace {

/// Multiplies by a weight, and adds up what it has seen in training.
class Counter final : public nn::Callable<Counter> {
 public:
  Counter() : Callable("Counter") {
    weight_ = register_parameter("weight", at::ones({2}));
    seen = register_buffer("seen", at::zeros({}), nn::BufferKind::kRunning);
    fixed = register_buffer("fixed", at::zeros({}));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (is_training()) {
      const c10::NoGradGuard no_grad;
      seen.add_(x.sum());
      fixed.add_(1);  // which it must not, and so nobody looks after it
    }
    return x * weight_;
  }
  at::Tensor seen, fixed;

 private:
  at::Tensor weight_;
};

class CountingPolicy final : public policy::Policy {
 public:
  const config::PolicyConfig& config() const override { fail("has no configuration"); }
  nn::Module& module() override { return root_; }
  policy::TrainOutput compute_loss(const dataset::Batch& batch) override {
    return {.loss = (*root_.counter)(batch.at("x")).sum(), .metrics = {}};
  }
  at::Tensor predict_action_chunk(const dataset::Batch&) override { fail("does not act"); }
  at::Tensor select_action(const dataset::Batch&) override { fail("does not act"); }
  void reset() override {}
  std::vector<policy::ParameterGroup> parameter_groups() override {
    return {{.parameters = root_.named_parameters(), .lr = {}}};
  }
  std::vector<std::string> wrap_modules() const override { return {"Counter"}; }

  Counter& counter() { return *root_.counter; }

 private:
  struct Root final : nn::Module {
    Root() : Module("CountingPolicy") {
      counter = register_module("counter", std::make_shared<Counter>());
    }
    std::shared_ptr<Counter> counter;
  };
  Root root_;
};

/// Rank 0 sees ones, rank 1 sees tens.
dataset::Batch batch_of(const World& world) {
  dataset::Batch batch;
  batch.tensors["x"] = at::full({2}, world.rank() == 0 ? 1.0 : 10.0, at::kFloat);
  return batch;
}

void step(TrainingModel& model, const World& world, bool synchronise) {
  dataset::Batch batch = batch_of(world);
  model.backward(model.compute_loss(batch, synchronise).loss);
}

TEST(RunningBuffers, OfReplicasAreRankZerosAfterEveryUpdate) {
  run_ranks(2, [](const World& world) {
    CountingPolicy policy;
    const auto model = make_training_model(policy, world, {});
    for (int update = 1; update <= 3; ++update) {
      step(*model, world, true);
      EXPECT_EQ(policy.counter().seen.item<float>(), 2.0F * static_cast<float>(update));
      EXPECT_EQ(policy.counter().fixed.item<float>(), static_cast<float>(update));
    }
  });
}

TEST(RunningBuffers, OfReplicasAreTheirOwnBetweenMicroBatches) {
  run_ranks(2, [](const World& world) {
    CountingPolicy policy;
    config::AcceleratorConfig options;
    options.gradient_accumulation.steps = 2;
    const auto model = make_training_model(policy, world, options);
    step(*model, world, false);
    EXPECT_EQ(policy.counter().seen.item<float>(), world.rank() == 0 ? 2.0F : 20.0F);
    step(*model, world, true);
    EXPECT_EQ(policy.counter().seen.item<float>(), 4.0F);
  });
}

TEST(RunningBuffers, OfShardsAreEachRanksOwn) {
  run_ranks({.dp_shard = 2}, [](const World& world) {
    CountingPolicy policy;
    const auto model = make_training_model(policy, world, {});
    for (int update = 0; update < 2; ++update) step(*model, world, true);
    EXPECT_EQ(policy.counter().seen.item<float>(), world.rank() == 0 ? 4.0F : 40.0F);
  });
}

}  // namespace
}  // namespace lerobot::distributed
