// ACT as a policy: its loss, and acting with a queue of predicted actions or a temporal ensemble.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/policy/act/act_config.h"
#include "lerobot/policy/act/act_model.h"
#include "lerobot/policy/policy.h"

namespace lerobot::policy {

/// Averages overlapping predictions of the same moment (algorithm 2 of the paper), with weights
/// exp(-coefficient * i), i = 0 for the oldest prediction.
class ActTemporalEnsembler {
 public:
  ActTemporalEnsembler(double coefficient, std::int64_t chunk_size);

  /// Takes the newest chunk (B, C, A); returns and forgets the action (B, A) that is due.
  at::Tensor update(const at::Tensor& chunk);
  void reset();

 private:
  std::int64_t chunk_size_;
  at::Tensor weights_;             // (C)
  at::Tensor cumulative_weights_;  // (C)
  at::Tensor averages_;            // (B, C - 1, A) between calls
  at::Tensor counts_;              // (C - 1, 1): predictions in each average
};

class ActPolicy final : public Policy {
 public:
  /// Throws Error listing what is wrong with the configuration or its features.
  ActPolicy(const ActConfig& config, bool load_pretrained_backbone);

  const config::PolicyConfig& config() const override { return config_; }
  nn::Module& module() override { return *root_; }

  /// l1_loss: mean absolute error of the actions that are not padding. In training with the
  /// variational objective, kld_loss too; loss = l1 + kl_weight * kld.
  TrainOutput compute_loss(const dataset::Batch& batch) override;
  at::Tensor predict_action_chunk(const dataset::Batch& batch) override;
  at::Tensor select_action(const dataset::Batch& batch) override;
  void reset() override;

  /// Everything but the backbone, then the backbone with its own rate (also when it is empty).
  std::vector<ParameterGroup> parameter_groups() override;
  std::vector<std::string> wrap_modules() const override {
    return {"ACTEncoderLayer", "ACTDecoderLayer"};
  }

  Act& model() { return *model_; }

 private:
  struct Root;

  ActConfig config_;
  std::shared_ptr<nn::Module> root_;
  std::shared_ptr<Act> model_;
  std::deque<at::Tensor> queue_;
  std::optional<ActTemporalEnsembler> ensembler_;
};

}  // namespace lerobot::policy
