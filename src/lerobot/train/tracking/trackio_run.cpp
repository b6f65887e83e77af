#include "lerobot/train/tracking/trackio_run.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <pthread.h>
#include <string>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/base/utf8.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;
using SystemClock = std::chrono::system_clock;

TrackingPlan plan_of(const config::TrainConfig& config, Json tree, const fs::path& output_dir) {
  const std::string now = tracking_timestamp(SystemClock::now());
  const std::string job = config.job_name.value_or("run");
  return {.place = trackio_place(config.trackio.project),
          .project = to_utf8(config.trackio.project),
          .name = config.trackio.name.value_or(default_run_name(output_dir, job)),
          .chosen_name = config.trackio.name.has_value(),
          .resumes = config.resume,
          .output_dir = output_dir.string(),
          .config = {tracked_json(tracked_config(config, std::move(tree), now)), now}};
}

/// The command that shows the project, as a shell takes it.
std::string show_command(const TrackioPlace& place) {
  std::string command = fmt::format("trackio show --project {}", place.project);
  const char* const folder = std::getenv("TRACKIO_DIR");
  if (folder == nullptr || *folder == '\0') return command;
  return fmt::format("TRACKIO_DIR='{}' {}", fs::absolute(folder).string(), command);
}

void say_where_to_look(const TrackingPlan& plan) {
  log::info("Watch this run: {} (project {}, run '{}')", show_command(plan.place),
            plan.place.project, plan.name);
  if (plan.place.storage == TrackioPlace::Storage::kInbox)
    log::info(
        "trackio: rows go to files in {}, which a running `trackio show` brings into the project "
        "(TRACKIO_STORAGE_MODE chooses)",
        plan.place.inbox().string());
  for (const char* name : {"TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    log::warning(
        "{} has no effect: runs are tracked on this machine only. `trackio sync --project {} "
        "--space-id OWNER/NAME` brings the project to a Space",
        name, plan.place.project);
  }
}

}  // namespace

TrackioRun::TrackioRun(const config::TrainConfig& config, Json tree, const fs::path& output_dir,
                       TrackingLimits limits)
    : limits_(limits),
      writer_(
          [&] {
            TrackingPlan plan = plan_of(config, std::move(tree), output_dir);
            say_where_to_look(plan);
            return plan;
          }(),
          limits, [this] { return is_stopping(); }),
      thread_([this] { run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "trackio");
}

TrackioRun::~TrackioRun() { finish(); }

void TrackioRun::training_line(const Json& line) {
  add(line["step"].get<std::int64_t>(), tracked_training_line(line));
}

void TrackioRun::held_out_loss(std::int64_t step, double loss) {
  add(step, {{"eval/eval_loss", loss}});
}

void TrackioRun::add(std::int64_t step, const Json& metrics) {
  TrackedRow row{.log_id = random_tracking_id(),
                 .timestamp = tracking_timestamp(SystemClock::now()),
                 .step = step,
                 .metrics = tracked_json(metrics)};
  const std::lock_guard lock(mutex_);
  incoming_.push_back(std::move(row));
}

bool TrackioRun::is_stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void TrackioRun::run() {
  for (bool stopping = false; !stopping;) {
    std::vector<TrackedRow> rows;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, limits_.write_interval, [this] { return stopping_; });
      stopping = stopping_;
      rows.swap(incoming_);
    }
    writer_.add(std::move(rows));
    if (!stopping) writer_.write();
  }
  writer_.finish();
}

void TrackioRun::finish() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

}  // namespace lerobot::train
