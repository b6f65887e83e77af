// A range of training steps, as --profile.steps has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lerobot::config {

/// Both ends belong to it; the first step of a run is 1.
struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 1;
};

/// "A:B" with 1 <= A <= B; nothing for any other text.
std::optional<StepRange> parse_step_range(std::string_view text);

}  // namespace lerobot::config
