// Optimizers with torch's numbers and torch's state layout.
//
// On a CPU float32 parameters are updated in one pass over the memory on all of torch's threads,
// with the roundings of torch's default (unfused) optimizers: the results are bit-identical to
// LeRobot's. Other types follow torch's operations one by one; CUDA uses torch's fused kernels.
//
// An optimizer is used from one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
  /// NaN (unset): make_optimizer() puts the configuration's rate here.
  double lr = std::numeric_limits<double>::quiet_NaN();
  std::optional<double> initial_lr = std::nullopt;  // set when a scheduler exists
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update of every parameter that has a gradient. Gradients are left as they are.
  virtual void step() = 0;
  /// Drops the gradients.
  void zero_grad();

  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }
  /// The configuration's learning rate, whatever the groups have.
  double default_lr() const { return default_lr_; }

  /// optimizer_state.safetensors: "state/<n>/<key>", n numbering parameters over the groups;
  /// parameters that never had a gradient have no entries. Tensors are handles, not copies.
  serialization::NamedTensors state() const;
  /// One of the tensors that step() keeps about a parameter.
  struct StateTensor {
    std::string parameter;  // its name
    std::size_t number;     // of the parameter, over all groups
    at::Tensor parameter_value;
    std::string key;         // "exp_avg"
    bool is_scalar = false;  // a 0-d float32 number instead of the parameter's shape
    at::Tensor value;        // a handle; undefined before the parameter's first gradient
  };
  /// What state() would hold if every parameter had had a gradient, by the parameters' names.
  std::vector<StateTensor> state_tensors() const;
  /// "state/<n>/<key>".
  static std::string state_name(std::size_t number, std::string_view key);
  /// Restores state(). A writable tensor that nobody else holds is taken over, others are copied
  /// and let go one by one. Throws Error naming the first key that is missing, unknown or of
  /// another shape; the optimizer is then as it was.
  void load_state(serialization::NamedTensors state);
  /// optimizer_param_groups.json in the keys, order and types that torch's optimizer has.
  Json param_groups() const;
  /// Restores every group's lr, initial_lr and other numbers. Throws Error when the groups, their
  /// sizes or their keys differ from this optimizer's, or ask for what it does not do (amsgrad,
  /// maximize); the optimizer is then as it was. `source` is what messages call their origin.
  void load_param_groups(const Json& groups,
                         const std::string& source = "optimizer_param_groups.json");

 protected:
  /// A state tensor's name in files, and whether it is a 0-d float32 number instead of a tensor of
  /// the parameter's shape.
  struct StateKey {
    const char* name;
    bool is_scalar = false;
  };
  /// A parameter's tensors in the order of the keys; empty before its first gradient.
  using ParameterState = std::vector<at::Tensor>;

  /// Fills in unset rates. Throws InternalError when a parameter occurs twice.
  Optimizer(double default_lr, std::vector<StateKey> keys, std::vector<Group> groups);

  /// Number of group `group`'s first parameter over all groups.
  std::size_t first_parameter(std::size_t group) const;
  /// torch's keys of a group between "lr" and "initial_lr", with this optimizer's values.
  virtual Json settings(std::size_t group) const = 0;
  /// Takes over one group's settings. `apply` false only checks them. Throws Error naming `where`.
  virtual void load_settings(std::size_t group, const Json& settings, const std::string& where,
                             bool apply) = 0;

  std::vector<Group> groups_;
  /// By number of the parameter.
  std::vector<ParameterState> state_;

 private:
  double default_lr_;
  std::vector<StateKey> keys_;
};

/// Groups whose lr is unset take the configuration's. Throws UsageError, naming the option, for
/// numbers that torch's optimizers refuse (a negative rate, a beta outside [0, 1), ...).
std::unique_ptr<Optimizer> make_optimizer(const config::OptimizerConfig& config,
                                          std::vector<Group> groups);

/// The 2-norm of all gradients (0-d, on the first one's device): the norm of the tensors' norms.
at::Tensor grad_norm(const nn::NamedTensors& parameters);

/// Scales all gradients by min(1, max_norm / (norm + 1e-6)), whatever `norm` was measured over.
/// max_norm <= 0 does nothing.
void clip_gradients(const nn::NamedTensors& parameters, const at::Tensor& norm, double max_norm);

/// Scales all gradients by min(1, max_norm / (norm + 1e-6)) and returns the 2-norm of all gradients
/// before that (0-d, on the gradients' device), as torch.nn.utils.clip_grad_norm_ does: the norm of
/// the tensors' norms. max_norm <= 0 only measures. Does not wait for a CUDA device.
at::Tensor clip_grad_norm(const nn::NamedTensors& parameters, double max_norm);

}  // namespace lerobot::optim
