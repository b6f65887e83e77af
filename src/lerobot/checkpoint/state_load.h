// Loading a model and an optimizer, whole or divided, from what was saved whole or divided.
//
// Each rank reads its own rows alone. Everything that can be known without reading is checked
// before anything changes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lerobot/checkpoint/state_source.h"
#include "lerobot/distributed/shard.h"
#include "lerobot/optim/optimizer.h"

namespace lerobot::checkpoint {

/// Overwrites the tensors of `model` in place. Floating-point numbers are converted to the target's
/// type. Throws Error naming where and the tensor that is missing, has another shape or another
/// kind of numbers; nothing has changed then. A file found damaged on the way is an Error too, and
/// leaves the model half loaded. Returns the names that the source has and the model has not: for
/// warn_about_unexpected().
std::vector<std::string> load_model(std::span<const distributed::LocalTensor> model,
                                    const StateSource& source);

/// Logs a warning with the first few names; nothing when there are none.
void warn_about_unexpected(const std::vector<std::string>& names, const std::string& where);

/// Names of an optimizer's parameters by group, as open_optimizer() needs them.
std::vector<std::vector<std::string>> parameter_names(const optim::Optimizer& optimizer);

/// Restores the settings of all groups and this rank's part of the state; `model` tells which rows
/// of each parameter this rank holds. As strict as the optimizer's own load_param_groups() and
/// load_state(); a parameter of which nothing was saved never had a gradient and is left without
/// state. The optimizer is as it was after an Error. Holds this rank's part and one tensor.
void load_optimizer(optim::Optimizer& optimizer, std::span<const distributed::LocalTensor> model,
                    const OptimizerSource& source);

}  // namespace lerobot::checkpoint
