// What can be done with a run's result: commands and Python with its own paths.
#pragma once

#include <string>
#include <vector>

#include "lerobot/train/report/run_data.h"

namespace lerobot::train {

struct Usage {
  std::string title;
  std::string text;     ///< a sentence; may be empty
  std::string snippet;  ///< to be copied
};

/// Empty without a complete checkpoint.
std::vector<Usage> usages(const RunData& data);

}  // namespace lerobot::train
