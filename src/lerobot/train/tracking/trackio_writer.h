// Gets the rows of one run into trackio's files, in as many attempts as that takes.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/train/tracking/trackio_identity.h"
#include "lerobot/train/tracking/trackio_place.h"
#include "lerobot/train/tracking/trackio_rows.h"

namespace lerobot::train {

/// What a run is in trackio before anything has been looked up.
struct TrackingPlan {
  TrackioPlace place;
  std::string project;       ///< as the user wrote it
  std::string name;          ///< of the run
  bool chosen_name = false;  ///< by the user
  bool resumes = false;
  std::string output_dir;  ///< as the configuration has it
  TrackedConfig config;
};

struct TrackingLimits {
  std::chrono::duration<double> write_interval = std::chrono::milliseconds(500);  // trackio's
  /// Between attempts that fail: twice the time after every one, up to this.
  std::chrono::duration<double> longest_retry_interval = std::chrono::seconds(30);
  /// For the lock file, and for the database itself.
  std::chrono::duration<double> lock_wait = std::chrono::seconds(10);
  /// Rows that wait at the most, about 30 MB of them; the oldest are given up first.
  std::size_t most_waiting = 50'000;
};

/// Not thread-safe. Failures are said in the log, each once, and never thrown: rows wait.
class TrackioWriter {
 public:
  /// A new run is remembered in the output folder at once. `hurries` is asked while a lock is
  /// waited for: true puts the attempt off.
  TrackioWriter(TrackingPlan plan, TrackingLimits limits, std::function<bool()> hurries);

  void add(std::vector<TrackedRow> rows);
  /// Looks a resumed run up and writes what waits, unless an attempt has failed just before.
  void write();
  /// Writes what waits, now, if need be without the lock file, and says what has become of the run.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void attempt(bool last);
  void open(LockPatience patience);
  void settle_run(const TrackioDatabase* database);
  void remember() const;
  void give_up_oldest();
  void failed(const char* reason);
  void succeeded();
  /// "FOLDER/project.db"
  std::string destination() const;

  const TrackingPlan plan_;
  const TrackingLimits limits_;
  const std::function<bool()> hurries_;
  /// Null until a resumed run has been looked up.
  std::optional<TrackedRun> run_;
  std::unique_ptr<TrackedRows> rows_;    // null: to be opened
  TrackioDatabase* database_ = nullptr;  // what rows_ is, unless that is an inbox
  std::vector<TrackedRow> waiting_;
  std::size_t written_ = 0;
  std::size_t given_up_ = 0;
  int failures_ = 0;  // one after the other
  std::string last_failure_;
  Clock::time_point next_attempt_ = Clock::now();
};

}  // namespace lerobot::train
