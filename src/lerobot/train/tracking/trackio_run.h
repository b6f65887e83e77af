// A training run as trackio's commands and dashboard show it, written straight into trackio's files
// on this machine. Tracking never stops a training: while the files can't be written, rows wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/config/train_config.h"
#include "lerobot/train/tracking/trackio_rows.h"
#include "lerobot/train/tracking/trackio_writer.h"

namespace lerobot::train {

/// Of rank 0. Rows are queued, and written by a thread of its own.
class TrackioRun {
 public:
  /// `tree` is the whole configuration, as train_config.json has it. With config.resume the run
  /// that `output_dir` (an existing folder) remembers goes on, or the latest of its name; else it
  /// is a new one. Says in the log where to look.
  TrackioRun(const config::TrainConfig& config, Json tree, const std::filesystem::path& output_dir,
             TrackingLimits limits = {});
  TrackioRun(const TrackioRun&) = delete;
  TrackioRun& operator=(const TrackioRun&) = delete;
  /// finish()
  ~TrackioRun();

  /// A line of metrics.jsonl, with its "step".
  void training_line(const Json& line);
  void held_out_loss(std::int64_t step, double loss);

  /// Returns when everything is written, or can't be. Done again it does nothing.
  void finish() noexcept;

 private:
  void add(std::int64_t step, const Json& metrics);
  void run();
  bool is_stopping() const;

  const TrackingLimits limits_;
  TrackioWriter writer_;  // the thread's, until it has ended

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<TrackedRow> incoming_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lerobot::train
