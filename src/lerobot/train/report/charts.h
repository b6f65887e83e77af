// The charts of a report: which numbers of metrics.jsonl stand together, and their points for
// report.js.
#pragma once

#include <string>
#include <vector>

#include "lerobot/train/report/run_data.h"

namespace lerobot::train {

struct Charts {
  /// <figure> elements, by section.
  std::string learning;
  std::string speed;
  std::string resources;
  /// What report.js draws, as JSON.
  std::string data;
};

/// Keys that no chart knows, the policy's own among them, get one each.
Charts make_charts(const RunData& data);

/// Where the time of a run went, over all its lines.
struct TimeShare {
  std::string name;  ///< "forward"
  double seconds = 0;
  int color = 0;
};
/// In the order of a step; empty without such records.
std::vector<TimeShare> time_shares(const RunData& data);

}  // namespace lerobot::train
