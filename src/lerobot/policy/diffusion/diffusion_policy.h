// Diffusion as a policy: its loss, and acting with a queue of predicted actions.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/policy/diffusion/diffusion_config.h"
#include "lerobot/policy/diffusion/diffusion_model.h"
#include "lerobot/policy/policy.h"

namespace lerobot::policy {

class DiffusionPolicy final : public Policy {
 public:
  /// Throws Error listing what is wrong with the configuration or its features.
  DiffusionPolicy(const DiffusionConfig& config, bool load_pretrained_backbone);

  const config::PolicyConfig& config() const override { return config_; }
  nn::Module& module() override { return *root_; }

  /// The loss alone: there are no metrics.
  TrainOutput compute_loss(const dataset::Batch& batch) override;
  /// (B, n_action_steps or fewer, A), in the module's mode: like LeRobot's, it does not switch to
  /// evaluation mode. Of the batch's windows of observations while select_action() has not seen
  /// any, of those that it has seen otherwise.
  at::Tensor predict_action_chunk(const dataset::Batch& batch) override;
  /// Of single observations, without a time axis: the first one stands for those before it.
  at::Tensor select_action(const dataset::Batch& batch) override;
  void reset() override;

  /// One group.
  std::vector<ParameterGroup> parameter_groups() override;
  std::vector<std::string> wrap_modules() const override {
    return {"DiffusionConditionalResidualBlock1d", "DiffusionRgbEncoder"};
  }

  DiffusionModel& model() { return *model_; }

 private:
  struct Root;

  DiffusionConfig config_;
  std::shared_ptr<nn::Module> root_;
  std::shared_ptr<DiffusionModel> model_;
  std::map<std::string, std::deque<at::Tensor>, std::less<>> observations_;  // the latest
  std::deque<at::Tensor> actions_;
};

}  // namespace lerobot::policy
