// The records of a run as its report needs them, read from its output folder: of a run that goes
// on, has ended or has died. What is damaged or missing is left out and noted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/train/report/run_state.h"

namespace lerobot::train {

/// One number of metrics.jsonl over the steps, in the order of steps.
struct Series {
  std::vector<std::int64_t> steps;
  std::vector<double> values;  ///< also NaN and infinities

  bool empty() const { return steps.empty(); }
};

struct Checkpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
  std::uint64_t bytes = 0;
  std::string missing;  ///< what it lacks; empty when it is complete
  bool is_last = false;
  std::optional<double> held_out_loss;  ///< measured at its step
};

struct RunData {
  std::filesystem::path folder;   ///< absolute
  std::optional<RunState> state;  ///< run.json
  /// run.json's or the newest checkpoint's; null when there is neither.
  Json configuration;
  /// By key of metrics.jsonl.
  std::map<std::string, Series> series;
  /// Keys in the order of their first appearance.
  std::vector<std::string> keys;
  std::vector<Checkpoint> checkpoints;  ///< the oldest first
  /// Sentences about what could not be read.
  std::vector<std::string> notes;

  std::int64_t last_step() const;
  const Series* find(const std::string& key) const;
};

/// The text at a path of JSON's form ("/policy/type"); empty when there is none.
std::string text_at(const Json& json, const char* pointer);

/// Throws Error when `folder` is no folder, or holds none of a run's records.
RunData read_run_data(const std::filesystem::path& folder);

}  // namespace lerobot::train
