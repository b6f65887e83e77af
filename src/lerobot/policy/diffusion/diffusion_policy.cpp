#include "lerobot/policy/diffusion/diffusion_policy.h"

#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"

namespace lerobot::policy {

/// The tree's root, so that every name begins with "diffusion.".
struct DiffusionPolicy::Root final : nn::Module {
  explicit Root(std::shared_ptr<DiffusionModel> model) : Module("DiffusionPolicy") {
    register_module("diffusion", std::move(model));
  }
};

DiffusionPolicy::DiffusionPolicy(const DiffusionConfig& config, bool load_pretrained_backbone)
    : config_(config) {
  std::vector<std::string> problems = config_.validate();
  if (problems.empty()) problems = config_.feature_problems();
  if (!problems.empty()) fail("{}", fmt::join(problems, "; "));
  model_ = std::make_shared<DiffusionModel>(config_, load_pretrained_backbone);
  root_ = std::make_shared<Root>(model_);
}

TrainOutput DiffusionPolicy::compute_loss(const dataset::Batch& batch) {
  return {.loss = model_->loss(batch), .metrics = {}};
}

at::Tensor DiffusionPolicy::predict_action_chunk(const dataset::Batch& batch) {
  const c10::AutoGradMode no_grad(false);
  if (observations_.empty()) return model_->generate(batch);
  dataset::Batch window;
  window.frame_index = batch.frame_index;
  for (const auto& [name, queue] : observations_)
    window.tensors.emplace(name, at::stack(std::vector(queue.begin(), queue.end()), 1));
  return model_->generate(window);
}

at::Tensor DiffusionPolicy::select_action(const dataset::Batch& batch) {
  const c10::AutoGradMode no_grad(false);
  std::vector<const Feature*> features = config_.cameras();
  features.push_back(config_.robot_state());
  if (const Feature* environment = config_.environment_state()) features.push_back(environment);
  for (const Feature* feature : features) {
    const at::Tensor& observation = batch.at(feature->first);
    auto& queue = observations_[feature->first];
    const auto length = static_cast<std::size_t>(config_.n_obs_steps);
    if (queue.size() == length) queue.pop_front();
    do queue.push_back(observation);
    while (queue.size() < length);
  }
  if (actions_.empty())
    for (const at::Tensor& action : predict_action_chunk(batch).unbind(1))
      actions_.push_back(action);
  at::Tensor action = std::move(actions_.front());
  actions_.pop_front();
  return action;
}

void DiffusionPolicy::reset() {
  observations_.clear();
  actions_.clear();
}

std::vector<ParameterGroup> DiffusionPolicy::parameter_groups() {
  return {{.parameters = root_->trainable_parameters(), .lr = {}}};
}

}  // namespace lerobot::policy
