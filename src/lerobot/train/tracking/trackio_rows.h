// What a run is made of in trackio: rows, and one configuration. Forms that trackio 0.43 reads: a
// single row that breaks them makes every reader of its run fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "lerobot/base/json.h"
#include "lerobot/config/train_config.h"

namespace lerobot::train {

/// Rows belong together by their run_id; the name is how people know the run, and may occur twice.
struct TrackedRun {
  std::string id;
  std::string name;  ///< UTF-8
};

/// One call of trackio.log().
struct TrackedRow {
  std::string log_id;     ///< unique: a row that comes twice is kept once
  std::string timestamp;  ///< when it was logged
  std::int64_t step = 0;
  std::string metrics;  ///< JSON object
};

struct TrackedConfig {
  std::string json;
  std::string created_at;
};

/// Where a run's rows go.
class TrackedRows {
 public:
  virtual ~TrackedRows() = default;

  /// Writes all of `rows` or none, and the configuration with the first that it writes. Throws
  /// Error; rows whose fate is unknown may be written again.
  virtual void write(const TrackedRun& run, std::span<const TrackedRow> rows,
                     const TrackedConfig& config) = 0;
};

/// A random UUID (version 4): 32 lower-case hexadecimal digits.
std::string random_tracking_id();

/// "2026-11-30T09:00:00.000000+00:00": UTC. Compared as text, so always in this length.
std::string tracking_timestamp(std::chrono::system_clock::time_point time);

/// Compact JSON in UTF-8; numbers that are not finite become "NaN", "Infinity" and "-Infinity".
/// trackio recognises a project with numbers by a colon that a digit follows.
std::string tracked_json(const Json& value);

/// The metrics of a training line under the names that LeRobot logs: {"step": 10, "grdn": 1.5, ...}
/// becomes {"train/steps": 10, "train/grad_norm": 1.5, ...}. What is no number, text or truth value
/// is left out.
Json tracked_training_line(const Json& line);

/// The configuration of a run: `config` and trackio's three keys, of which _Group is LeRobot's
/// "policy:act-seed:1000-dataset:lerobot/pusht".
Json tracked_config(const config::TrainConfig& config, Json tree, const std::string& created);

}  // namespace lerobot::train
