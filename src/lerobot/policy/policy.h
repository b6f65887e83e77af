// The interface between training and a policy. docs/policies.md says how to add one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/nn/module.h"
#include "lerobot/processor/pipeline.h"

namespace lerobot::policy {

/// `loss` is a 0-d tensor to call backward on; `metrics` are detached 0-d tensors in the order in
/// which they are logged (ACT: l1_loss, kld_loss).
struct TrainOutput {
  at::Tensor loss;
  std::vector<std::pair<std::string, at::Tensor>> metrics;
};

/// Parameters that share an optimizer's settings. Unset: the optimizer's own.
struct ParameterGroup {
  nn::NamedTensors parameters;
  std::optional<double> lr;
};

class Policy {
 public:
  virtual ~Policy() = default;

  virtual const config::PolicyConfig& config() const = 0;
  /// The module tree whose state_dict() is model.safetensors (ACT: every name begins "model.").
  virtual nn::Module& module() = 0;

  /// Training and held-out loss; in training mode the module's state decides about dropout and
  /// noise.
  virtual TrainOutput compute_loss(const dataset::Batch& batch) = 0;

  /// A chunk of actions (B, chunk, A), still normalised. No gradients. Switches to evaluation mode
  /// where LeRobot's policy does (ACT), else the caller has to.
  virtual at::Tensor predict_action_chunk(const dataset::Batch& batch) = 0;
  /// The next action (B, A) of the running episode, still normalised.
  virtual at::Tensor select_action(const dataset::Batch& batch) = 0;
  /// Forgets the running episode.
  virtual void reset() = 0;

  /// The trainable parameters in the preset's groups, in the order that numbers the optimizer's
  /// state. Adapters change names: tell parameters by the module that they are in.
  virtual std::vector<ParameterGroup> parameter_groups() = 0;
  /// Class names of the units that sharded training gathers one at a time; empty: none declared.
  virtual std::vector<std::string> wrap_modules() const { return {}; }
};

}  // namespace lerobot::policy
