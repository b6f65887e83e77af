// Optimizers with torch's state layout.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/base/json.h"
#include "lerobot/config/optim_config.h"
#include "lerobot/nn/module.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::optim {

/// A parameter group: handles to parameters, and the settings that a scheduler may change.
struct Group {
  nn::NamedTensors parameters;
  double lr = 0.0;
  std::optional<double> initial_lr;  // set when a scheduler exists
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update of every parameter that has a gradient.
  virtual void step() = 0;
  /// Drops the gradients.
  void zero_grad();

  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }

  /// optimizer_state.safetensors: "state/<n>/<key>", n numbering parameters over the groups;
  /// parameters that never had a gradient have no entries. Tensors are handles, not copies.
  virtual serialization::NamedTensors state() const = 0;
  /// Restores state(); throws Error naming the first key that is missing, unknown or of another shape.
  virtual void load_state(const serialization::NamedTensors& state) = 0;
  /// optimizer_param_groups.json in the keys and types that torch's optimizer has.
  virtual Json param_groups() const = 0;
  /// Restores lr and the other numbers; throws Error when groups or their sizes differ.
  virtual void load_param_groups(const Json& groups) = 0;

 protected:
  std::vector<Group> groups_;
};

/// `groups` with lr unset take the configuration's.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimizerConfig& config,
                                          std::vector<Group> groups);

/// Scales all gradients by min(1, max_norm / (norm + 1e-6)) and returns the 2-norm of all gradients
/// before that, as torch.nn.utils.clip_grad_norm_ does. max_norm <= 0 only measures.
at::Tensor clip_grad_norm(const nn::NamedTensors& parameters, double max_norm);

}  // namespace lerobot::optim
