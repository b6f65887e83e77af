// What LeRobot's options ask for and this trainer can't do (yet): the one place that says so. An
// option leaves the table of capabilities.cpp when its capability arrives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lerobot/config/policy_types.h"
#include "lerobot/config/reflection.h"
#include "lerobot/config/train_config.h"

namespace lerobot::config {

/// One problem for every option whose value needs a missing capability.
std::vector<Problem> unsupported_options(const TrainConfig& config, const PolicyTypes& policies);

/// Why an option that is not in the tree is refused although LeRobot knows it ("env.type"): "is not
/// supported: ...". Empty when LeRobot doesn't know it either.
std::string unsupported_name(std::string_view name);

}  // namespace lerobot::config
