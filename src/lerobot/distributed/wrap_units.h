// Which parameters are gathered together in sharded training: the wrap units.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/config/train_config.h"
#include "lerobot/nn/module.h"

namespace lerobot::distributed {

/// A parameter under every name that it has: more than one when it is tied.
struct UnitParameter {
  std::vector<std::string> names;
  at::Tensor tensor;
};

/// A module whose parameters (without those of units below it) are gathered together.
struct WrapUnit {
  std::string name;  // "" for the root, which holds what is in no other unit
  nn::Module* module = nullptr;
  std::vector<UnitParameter> parameters;
};

struct WrapUnits {
  /// In the order of the module tree, the root first.
  std::vector<WrapUnit> units;
  /// Parameters that stay whole on every rank: those under `ignored_modules`, and single numbers.
  std::vector<UnitParameter> whole;
};

/// Divides the module tree into units: the classes of options.wrap_modules, or every submodule with
/// more than options.min_num_params parameters, or else the classes that the policy declares.
///
/// Throws Error when none of the three names a unit, for a class that does not occur or has no
/// forward of its own, for a damaged regular expression, for a tied parameter that falls into two
/// units, and for units whose trainable parameters have several types unless `one_type` says that
/// they will be made one.
WrapUnits choose_wrap_units(nn::Module& root, const std::vector<std::string>& declared,
                            const config::FsdpConfig& options, bool one_type);

}  // namespace lerobot::distributed
