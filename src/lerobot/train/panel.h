// What a run says about itself before its first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lerobot/train/session.h"

namespace lerobot::train {

struct ParameterCounts {
  std::int64_t learnable = 0;
  std::int64_t total = 0;
};

/// Of the whole policy, however it is divided.
ParameterCounts count_parameters(const Session& session);

/// LeRobot's lines, with those of a stream among them.
std::vector<std::string> panel_lines(const Session& session);

}  // namespace lerobot::train
