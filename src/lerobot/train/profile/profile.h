// --profile.steps=A:B: what every thread of every rank does in steps A to B, as a file that
// chrome://tracing and https://ui.perfetto.dev open (chrome_trace.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lerobot/config/step_range.h"
#include "lerobot/train/session.h"

namespace lerobot::train {

/// Used by the training thread of every rank, with the same calls on each. torch's profiler tells
/// operations and kernels, base/trace.h what our own threads do. Outside of the range a step costs
/// two comparisons.
class Profile {
 public:
  /// Of a configuration with profile.steps. Throws UsageError when the run begins behind the first
  /// of them. The session outlives it.
  explicit Profile(const Session& session);

  /// Before step number `step`, the first one being 1.
  void begin_step(std::int64_t step);
  /// After `done` steps: behind the last one of the range writes the file.
  void end_step(std::int64_t done);
  /// The run ends: writes what there is, when it ends within the range.
  void finish();

 private:
  void start();
  void write(std::int64_t last);
  std::string own_events();
  void gather(const std::filesystem::path& file, const std::string& own) const;

  const Session& session_;
  config::StepRange range_;
  bool is_recording_ = false;
  std::int64_t done_ = 0;
  std::int64_t origin_ns_ = 0;        // of the trace's time, on rank 0's clock
  std::int64_t clock_offset_ns_ = 0;  // what makes rank 0's clock of this host's
};

}  // namespace lerobot::train
