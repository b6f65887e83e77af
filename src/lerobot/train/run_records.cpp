#include "lerobot/train/run_records.h"

#include <csignal>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "lerobot/base/log.h"
#include "lerobot/config/command_line.h"
#include "lerobot/policy/registry.h"
#include "lerobot/train/report/report.h"

namespace lerobot::train {

RunRecords::RunRecords(const Session& session, const std::vector<std::string>& panel)
    : folder_(session.output_dir),
      metrics_(session.output_dir / kMetricsFile, session.start.step),
      state_(begin_run_state(session, panel)) {
  write_run_state(folder_, state_);
  if (session.config.trackio.enable)
    tracked_.emplace(session.config, config::to_json(session.config, policy::policy_types()),
                     session.output_dir);
}

void RunRecords::training_line(const Json& metrics) {
  Json line = metrics;
  line["unix_time"] = unix_time();
  metrics_.append(line);
  if (tracked_) tracked_->training_line(metrics);
}

void RunRecords::held_out_loss(std::int64_t step, double loss, double seconds) {
  metrics_.append(
      {{"step", step}, {"eval_loss", loss}, {"evaluation_s", seconds}, {"unix_time", unix_time()}});
  if (tracked_) tracked_->held_out_loss(step, loss);
}

void RunRecords::checkpoint_stall(std::int64_t step, double seconds) {
  metrics_.append({{"step", step}, {"checkpoint_stall_s", seconds}, {"unix_time", unix_time()}});
}

void RunRecords::checkpoint_saved() noexcept { write_report(); }

void RunRecords::finished(std::int64_t step) {
  end(RunStatus::kFinished, fmt::format("all {} steps are done", step));
}

void RunRecords::stopped(std::int64_t step, int signal) {
  end(RunStatus::kStopped,
      fmt::format("stopped by {} after step {}", signal == SIGINT ? "SIGINT" : "SIGTERM", step));
}

void RunRecords::failed(std::string_view message) noexcept { end(RunStatus::kFailed, message); }

void RunRecords::end(RunStatus status, std::string_view message) noexcept {
  {
    const std::lock_guard lock(mutex_);
    state_.status = status;
    state_.message = message;
  }
  write_report();
  if (tracked_) tracked_->finish();
}

/// A run is not ended because its report can't be written: `lerobot-train --report` makes it anew.
void RunRecords::write_report() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    write_run_state(folder_, state_);
    train::write_report(folder_);
  } catch (const std::exception& error) {
    if (!std::exchange(warned_, true))
      log::warning("The report is not up to date: {}", error.what());
  }
}

}  // namespace lerobot::train
