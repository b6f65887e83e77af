// What a run writes down about itself while it goes on: the one place for every record that rank 0
// keeps.
//
//   metrics.jsonl   one object a line: every training line, held-out loss and checkpoint
//   run.json        what the run is and how it stands (report/run_state.h)
//   report.html     all of it for a browser (report/report.h)
//   trackio         with --trackio.enable=true: training lines and held-out losses
//   (docs/tracking.md)
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/train/report/run_state.h"
#include "lerobot/train/run_log.h"
#include "lerobot/train/session.h"
#include "lerobot/train/tracking/trackio_run.h"

namespace lerobot::train {

/// Of rank 0. Used by the training thread, but for checkpoint_saved(). A record that can't be
/// written ends the run with an Error that names the file.
class RunRecords {
 public:
  /// Opens the records in the session's output folder, which exists; a resumed run goes on with
  /// what is there. The session outlives them.
  /// `panel`: what the log says before the first step.
  RunRecords(const Session& session, const std::vector<std::string>& panel);
  RunRecords(const RunRecords&) = delete;
  RunRecords& operator=(const RunRecords&) = delete;

  /// What a training line says, with its "step" (MetricsTracker::to_json() and what the loop adds).
  void training_line(const Json& metrics);
  /// `seconds`: what it took.
  void held_out_loss(std::int64_t step, double loss, double seconds);
  /// How long training stood still for a checkpoint.
  void checkpoint_stall(std::int64_t step, double seconds);
  /// A checkpoint is complete. From the thread that writes it; does not throw.
  void checkpoint_saved() noexcept;

  // The end of the run: one of these.

  /// All steps are done.
  void finished(std::int64_t step);
  /// SIGINT or SIGTERM; a resume goes on after `step`.
  void stopped(std::int64_t step, int signal);
  /// The run ends with this message. Does not throw: it is called while an exception is handled.
  void failed(std::string_view message) noexcept;

 private:
  void end(RunStatus status, std::string_view message) noexcept;
  void write_report() noexcept;

  std::filesystem::path folder_;
  JsonLines metrics_;
  std::mutex mutex_;  // over what follows: the training thread and the one that writes checkpoints
  RunState state_;
  bool warned_ = false;
  std::optional<TrackioRun> tracked_;
};

}  // namespace lerobot::train
