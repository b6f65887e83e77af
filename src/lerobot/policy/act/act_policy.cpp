#include "lerobot/policy/act/act_policy.h"

#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/policy/pretrained_backbone.h"

namespace lerobot::policy {

// --- Temporal ensemble
// ----------------------------------------------------------------------------

ActTemporalEnsembler::ActTemporalEnsembler(double coefficient, std::int64_t chunk_size)
    : chunk_size_(chunk_size),
      weights_(at::exp(at::arange(chunk_size) * -coefficient)),
      cumulative_weights_(at::cumsum(weights_, 0)) {}

void ActTemporalEnsembler::reset() {
  averages_.reset();
  counts_.reset();
}

at::Tensor ActTemporalEnsembler::update(const at::Tensor& chunk) {
  weights_ = weights_.to(chunk.device());
  cumulative_weights_ = cumulative_weights_.to(chunk.device());
  if (!averages_.defined()) {
    averages_ = chunk.clone();
    counts_ = at::ones({chunk_size_, 1}, at::dtype(at::kLong).device(chunk.device()));
  } else {
    const auto of = [&](const at::Tensor& table, const at::Tensor& index) {
      return table.index_select(0, index.flatten()).view(index.sizes());
    };
    averages_ = averages_ * of(cumulative_weights_, counts_ - 1) +
                chunk.narrow(1, 0, chunk_size_ - 1) * of(weights_, counts_);
    averages_ = averages_ / of(cumulative_weights_, counts_);
    counts_ = at::clamp(counts_ + 1, std::nullopt, chunk_size_);
    averages_ = at::cat({averages_, chunk.narrow(1, chunk_size_ - 1, 1)}, 1);
    counts_ = at::cat({counts_, at::ones({1, 1}, counts_.options())}, 0);
  }
  const at::Tensor due = averages_.select(1, 0);
  averages_ = averages_.narrow(1, 1, chunk_size_ - 1);
  counts_ = counts_.narrow(0, 1, chunk_size_ - 1);
  return due;
}

// --- Policy
// ---------------------------------------------------------------------------------------

/// The tree's root, so that every name begins with "model.".
struct ActPolicy::Root final : nn::Module {
  explicit Root(std::shared_ptr<Act> model) : Module("ACTPolicy") {
    register_module("model", std::move(model));
  }
};

ActPolicy::ActPolicy(const ActConfig& config, bool load_pretrained_backbone) : config_(config) {
  std::vector<std::string> problems = config_.validate();
  if (problems.empty()) problems = config_.feature_problems();
  if (!problems.empty()) fail("{}", fmt::join(problems, "; "));
  model_ = std::make_shared<Act>(config_);
  root_ = std::make_shared<Root>(model_);
  if (load_pretrained_backbone && model_->backbone() && config_.pretrained_backbone_weights)
    load_backbone_weights(*model_->backbone(), config_.vision_backbone,
                          *config_.pretrained_backbone_weights);
  if (config_.temporal_ensemble_coeff)
    ensembler_.emplace(*config_.temporal_ensemble_coeff, config_.chunk_size);
}

TrainOutput ActPolicy::compute_loss(const dataset::Batch& batch) {
  const at::Tensor& action = batch.at("action");
  const std::int64_t width = config_.action()->second.shape[0];
  if (action.dim() != 3 || action.size(1) != config_.chunk_size || action.size(2) != width)
    fail("action: expected a batch of chunks [B, {}, {}], found [{}]", config_.chunk_size, width,
         fmt::join(action.sizes(), ", "));
  const ActOutput output = (*model_)(batch);

  const at::Tensor error = at::l1_loss(action, output.actions, at::Reduction::None);
  const at::Tensor valid = at::logical_not(batch.at("action_is_pad")).unsqueeze(-1);
  const at::Tensor count = valid.sum() * width;
  const at::Tensor l1 = (error * valid).sum() / count.clamp_min(1);

  TrainOutput result;
  result.loss = l1;
  result.metrics.emplace_back("l1_loss", l1.detach());
  if (output.mu.defined()) {
    const at::Tensor& spread = output.log_sigma_x2;
    const at::Tensor kld = (-0.5 * (1 + spread - output.mu.pow(2) - spread.exp())).sum(-1).mean();
    result.metrics.emplace_back("kld_loss", kld.detach());
    result.loss = l1 + kld * config_.kl_weight;
  }
  return result;
}

at::Tensor ActPolicy::predict_action_chunk(const dataset::Batch& batch) {
  c10::AutoGradMode no_grad(false);
  root_->train(false);
  return (*model_)(batch).actions;
}

at::Tensor ActPolicy::select_action(const dataset::Batch& batch) {
  c10::AutoGradMode no_grad(false);
  if (ensembler_) return ensembler_->update(predict_action_chunk(batch));
  if (queue_.empty()) {
    const at::Tensor chunk = predict_action_chunk(batch);
    for (std::int64_t i = 0; i < config_.n_action_steps; ++i) queue_.push_back(chunk.select(1, i));
  }
  at::Tensor action = std::move(queue_.front());
  queue_.pop_front();
  return action;
}

void ActPolicy::reset() {
  queue_.clear();
  if (ensembler_) ensembler_->reset();
}

std::vector<ParameterGroup> ActPolicy::parameter_groups() {
  std::set<const c10::TensorImpl*> backbone;
  if (model_->backbone() != nullptr)
    for (const auto& [name, parameter] : model_->backbone()->named_parameters())
      backbone.insert(parameter.unsafeGetTensorImpl());
  std::vector<ParameterGroup> groups(2);
  groups[1].lr = config_.optimizer_lr_backbone;
  for (auto& [name, parameter] : root_->trainable_parameters()) {
    const bool is_backbones = backbone.contains(parameter.unsafeGetTensorImpl());
    groups[is_backbones ? 1 : 0].parameters.emplace_back(name, parameter);
  }
  return groups;
}

}  // namespace lerobot::policy
