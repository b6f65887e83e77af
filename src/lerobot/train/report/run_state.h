// run.json in the output folder: what a run is, and how it stands. Made from what rank 0 knows at
// the start, and written again at every checkpoint and at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/train/session.h"

namespace lerobot::train {

inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kMetricsFile = "metrics.jsonl";

enum class RunStatus {
  kRunning,
  kFinished,
  kStopped,  ///< by a signal
  kFailed,   ///< with an error
  kDied,     ///< without a word: never written, but found when a process is gone
};
/// "running", "finished", ...
const char* name_of(RunStatus status);

/// A number of this machine's that no other process has had since it was started.
struct ProcessIdentity {
  std::string host;
  std::int64_t process = 0;
  std::int64_t started_ticks = 0;  ///< after the machine's start, as the kernel counts
};

/// A run that went on in the same folder before. Times are seconds since 1970.
struct EarlierRun {
  double started = 0;
  double updated = 0;
  std::int64_t start_step = 0;
  std::string status;
  std::string host;
  std::int64_t ranks = 1;
};

/// Times are seconds since 1970.
struct RunState {
  RunStatus status = RunStatus::kRunning;
  std::string message;  ///< how it has ended
  double started = 0;
  double updated = 0;
  ProcessIdentity process;
  std::int64_t ranks = 1;
  std::string device;
  std::string program;  ///< "lerobot.cpp 0.1.0, torch 2.11.0"
  std::string command;  ///< how the user called it
  std::string folder;   ///< the output folder, absolute
  std::int64_t start_step = 0;
  std::int64_t steps = 0;
  std::int64_t samples_per_step = 0;  ///< of all ranks
  std::int64_t frames = 0;
  std::int64_t episodes = 0;
  std::int64_t learnable_parameters = 0;
  std::int64_t total_parameters = 0;
  std::vector<std::string> panel;
  Json configuration;              ///< train_config.json
  std::vector<EarlierRun> before;  ///< the oldest first
};

double unix_time();

/// The state of a run that begins now. Takes over what run.json in the output folder says about
/// earlier ones, unless this run is a new one.
RunState begin_run_state(const Session& session, const std::vector<std::string>& panel);

/// Sets `updated` and replaces run.json. Throws Error naming the file.
void write_run_state(const std::filesystem::path& folder, RunState& state);

/// What run.json says; nothing when there is none. A run that says it goes on although its process
/// is gone, as far as this machine can tell, has died. Throws Error when the file is damaged.
std::optional<RunState> read_run_state(const std::filesystem::path& folder);

}  // namespace lerobot::train
