// The options of lerobot-train as a list.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lerobot/config/policy_types.h"
#include "lerobot/config/reflection.h"

namespace lerobot::config {

/// Every option and group of TrainConfig, every type of policy, optimizer and scheduler included,
/// then --config_path.
std::vector<Option> train_options(const PolicyTypes& policies);

/// The types that are chosen; unset: none yet, so that the options of all types count.
struct ChosenTypes {
  std::optional<std::string> policy;
  std::optional<std::string> optimizer;
  std::optional<std::string> scheduler;
};

/// False for an option that belongs to a type that is not chosen.
bool applies(const Option& option, const ChosenTypes& chosen);

/// The group of a dotted name: "optimizer" of "optimizer.lr"; empty for a name without dots.
std::string_view first_part(std::string_view name);

}  // namespace lerobot::config
