// A small policy with what makes sharding hard: rows that no number of ranks divides, a bias of one
// row, a block that is called twice, a parameter that is never used, inputs of blocks with and
// without gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/layers.h"
#include "lerobot/policy/policy.h"

namespace lerobot::distributed {

inline constexpr std::int64_t kToyWidth = 7;
inline constexpr std::int64_t kToyHidden = 10;
inline constexpr std::int64_t kToyBatch = 4;

/// x + down(relu(up(x))), scaled by one number a unit.
class ToyBlock final : public nn::Callable<ToyBlock> {
 public:
  ToyBlock() : Callable("ToyBlock") {
    up_ = register_module("up", std::make_shared<nn::Linear>(kToyWidth, kToyHidden));
    down_ = register_module("down", std::make_shared<nn::Linear>(kToyHidden, kToyWidth));
    scale_ = register_parameter("scale", at::ones({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return x + (*down_)(at::relu((*up_)(x))) * scale_; }

 private:
  std::shared_ptr<nn::Linear> up_, down_;
  at::Tensor scale_;
};

class ToyNet final : public nn::Callable<ToyNet> {
 public:
  ToyNet() : Callable("ToyNet") {
    blocks_ = register_module("blocks", std::make_shared<nn::ModuleList<ToyBlock>>());
    for (int i = 0; i < 3; ++i) blocks_->push_back(std::make_shared<ToyBlock>());
    head_ = register_module("head", std::make_shared<nn::Linear>(kToyWidth, 3));
    unused_ = register_parameter("unused", at::ones({5}));
    temperature_ = register_parameter("temperature", at::ones({}));
    offset_ = register_buffer("offset", at::ones({3}));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = x;
    for (const auto& block : *blocks_) h = (*block)(h);
    h = (*(*blocks_).begin()->get())(h);  // once more
    return (*head_)(h)*temperature_ + offset_;
  }
  at::Tensor head_weight() const { return head_->weight; }
  /// Makes `tensor` a parameter of this module too.
  void tie(at::Tensor tensor) { register_parameter("tied", std::move(tensor)); }

 private:
  std::shared_ptr<nn::ModuleList<ToyBlock>> blocks_;
  std::shared_ptr<nn::Linear> head_;
  at::Tensor unused_, temperature_, offset_;
};

class ToyPolicy final : public policy::Policy {
 public:
  ToyPolicy() : root_("ToyPolicy") { net_ = root_.add(std::make_shared<ToyNet>()); }

  const config::PolicyConfig& config() const override { fail("a toy has no configuration"); }
  nn::Module& module() override { return root_; }
  policy::TrainOutput compute_loss(const dataset::Batch& batch) override {
    const at::Tensor& y = batch.at("y");
    const at::Tensor loss = at::mse_loss((*net_)(batch.at("x")).to(y.scalar_type()), y);
    return {.loss = loss, .metrics = {{"mse", loss.detach()}}};
  }
  at::Tensor predict_action_chunk(const dataset::Batch&) override { fail("a toy does not act"); }
  at::Tensor select_action(const dataset::Batch&) override { fail("a toy does not act"); }
  void reset() override {}
  std::vector<policy::ParameterGroup> parameter_groups() override {
    return {{.parameters = root_.named_parameters(), .lr = {}}};
  }
  std::vector<std::string> wrap_modules() const override { return {"ToyBlock"}; }

  ToyNet& net() { return *net_; }

 private:
  struct Root final : nn::Module {
    using Module::Module;
    std::shared_ptr<ToyNet> add(std::shared_ptr<ToyNet> net) {
      return register_module("net", std::move(net));
    }
  };

  Root root_;
  std::shared_ptr<ToyNet> net_;
};

/// Samples of one rank, the same whenever they are asked for.
inline dataset::Batch toy_batch(std::int64_t step, std::int64_t rank) {
  at::manual_seed(static_cast<std::uint64_t>(1000 + 10 * step + rank));
  dataset::Batch batch;
  batch.tensors["x"] = at::randn({kToyBatch, kToyWidth});
  batch.tensors["y"] = at::randn({kToyBatch, 3});
  return batch;
}

/// The samples of all ranks, in their order.
inline dataset::Batch toy_batch_of_all(std::int64_t step, std::int64_t ranks) {
  std::vector<at::Tensor> x, y;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const dataset::Batch part = toy_batch(step, rank);
    x.push_back(part.at("x"));
    y.push_back(part.at("y"));
  }
  dataset::Batch batch;
  batch.tensors["x"] = at::cat(x);
  batch.tensors["y"] = at::cat(y);
  return batch;
}

}  // namespace lerobot::distributed
