#include "lerobot/train/tracking/trackio_writer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/train/tracking/trackio_inbox.h"

namespace lerobot::train {
namespace {

/// Rows of one transaction: at 0.1 ms a row others wait for less than a tenth of a second.
constexpr std::size_t kRowsAtOnce = 500;

}  // namespace

TrackioWriter::TrackioWriter(TrackingPlan plan, TrackingLimits limits,
                             std::function<bool()> hurries)
    : plan_(std::move(plan)), limits_(limits), hurries_(std::move(hurries)) {
  if (plan_.resumes) return;
  run_ = new_run(plan_.name);
  remember();
}

void TrackioWriter::add(std::vector<TrackedRow> rows) {
  waiting_.insert(waiting_.end(), std::make_move_iterator(rows.begin()),
                  std::make_move_iterator(rows.end()));
  give_up_oldest();
}

void TrackioWriter::give_up_oldest() {
  if (waiting_.size() <= limits_.most_waiting) return;
  const std::size_t surplus = waiting_.size() - limits_.most_waiting;
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(surplus));
  given_up_ += surplus;
}

void TrackioWriter::write() {
  const bool has_work = !waiting_.empty() || !run_;
  if (has_work && Clock::now() >= next_attempt_) attempt(/*last=*/false);
}

void TrackioWriter::finish() {
  if (!waiting_.empty()) attempt(/*last=*/true);
  rows_.reset();
  const std::size_t lost = given_up_ + waiting_.size();
  if (lost > 0)
    log::warning("trackio: {} row(s) of the run are lost, which metrics.jsonl has: {}", lost,
                 last_failure_);
  if (written_ > 0)
    log::info("trackio: {} row(s) of run '{}' are in {}", written_, run_->name, destination());
  else if (lost == 0)
    log::info("trackio: nothing was logged (see --log_freq)");
}

void TrackioWriter::attempt(bool last) {
  const LockPatience patience{.limit = limits_.lock_wait,
                              .gives_up = last ? [] { return false; } : hurries_,
                              .goes_on_unlocked = last};
  try {
    if (database_ != nullptr && !database_->is_in_place()) rows_.reset();
    if (!rows_) open(patience);
    if (database_ != nullptr) database_->set_patience(patience);
    while (!waiting_.empty()) {
      const std::size_t count = std::min(kRowsAtOnce, waiting_.size());
      rows_->write(*run_, std::span(waiting_).first(count), plan_.config);
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
      written_ += count;
    }
    succeeded();
  } catch (const std::exception& error) {
    // Whatever it was, the next attempt looks at the files anew.
    rows_.reset();
    database_ = nullptr;
    if (last || !hurries_()) failed(error.what());
  }
}

void TrackioWriter::open(LockPatience patience) {
  database_ = nullptr;
  if (plan_.place.storage == TrackioPlace::Storage::kInbox) {
    std::error_code ignored;
    std::unique_ptr<TrackioDatabase> readable;
    if (!run_ && std::filesystem::exists(plan_.place.database(), ignored))
      readable = std::make_unique<TrackioDatabase>(plan_.place, TrackioDatabase::Mode::kReadOnly,
                                                   std::move(patience));
    settle_run(readable.get());
    rows_ = std::make_unique<TrackioInbox>(plan_.place.inbox(), plan_.project);
    return;
  }
  auto database = std::make_unique<TrackioDatabase>(plan_.place, TrackioDatabase::Mode::kReadWrite,
                                                    std::move(patience));
  settle_run(database.get());
  database_ = database.get();
  rows_ = std::move(database);
}

void TrackioWriter::settle_run(const TrackioDatabase* database) {
  if (run_) return;
  const auto known = remembered_run(plan_.output_dir);
  // Under another project or name the user wants another run.
  const bool ours = known && known->project == plan_.place.project &&
                    (!plan_.chosen_name || known->run.name == plan_.name);
  run_ = continued_run(database, ours ? std::optional(known->run) : std::nullopt, plan_.name,
                       plan_.output_dir);
  if (run_) {
    log::info("trackio: going on with run '{}' ({})", run_->name, run_->id);
  } else {
    run_ = new_run(plan_.name);
    log::info("trackio: there is no run '{}' to go on with in {}: a new one begins", plan_.name,
              plan_.place.project);
  }
  remember();
}

void TrackioWriter::remember() const {
  try {
    remember_run(plan_.output_dir, {plan_.place.project, *run_});
  } catch (const Error& error) {
    log::warning("{}; a resumed run will be looked for by its name", error.what());
  }
}

void TrackioWriter::failed(const char* reason) {
  if (last_failure_ != reason)
    log::warning("trackio: {}. Training goes on, {} row(s) wait", reason, waiting_.size());
  last_failure_ = reason;
  next_attempt_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(
                                     limits_.longest_retry_interval,
                                     limits_.write_interval * std::exp2(std::min(failures_, 30))));
  ++failures_;
}

void TrackioWriter::succeeded() {
  if (failures_ > 0) log::info("trackio: the rows that waited are in {}", destination());
  failures_ = 0;
}

std::string TrackioWriter::destination() const {
  return plan_.place.storage == TrackioPlace::Storage::kDatabase ? plan_.place.database().string()
                                                                 : plan_.place.inbox().string();
}

}  // namespace lerobot::train
