// The rules of a complete configuration, with the option that each broken one is about.
#pragma once

#include <vector>

#include "lerobot/config/reflection.h"
#include "lerobot/config/train_config.h"

namespace lerobot::config {

/// Values out of range and rules between options. Messages begin with "--option".
std::vector<Problem> broken_rules(const TrainConfig& config);

}  // namespace lerobot::config
