#include "lerobot/train/tracking/trackio_inbox.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"

namespace lerobot::train {
namespace {

constexpr std::size_t kWriterDigits = 16;

}  // namespace

TrackioInbox::TrackioInbox(std::filesystem::path inbox, std::string project)
    : folder_(std::move(inbox) / random_tracking_id().substr(0, kWriterDigits)),
      project_(std::move(project)) {}

void TrackioInbox::write(const TrackedRun& run, std::span<const TrackedRow> rows,
                         const TrackedConfig& config) {
  if (rows.empty()) return;
  const std::string text = lines(run, rows, config);
  // A dashboard removes the folder when it has emptied it: perhaps just now.
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    try {
      make_directories(folder_);
      write_file_atomic(folder_ / fmt::format("{:08}.jsonl", files_), text);
      break;
    } catch (const SystemError& error) {
      if (error.error_number() != ENOENT || attempt == kAttempts) throw;
    }
  }
  ++files_;
  last_timestamp_ = std::max(last_timestamp_, rows.back().timestamp);
}

std::string TrackioInbox::lines(const TrackedRun& run, std::span<const TrackedRow> rows,
                                const TrackedConfig& config) const {
  const std::string project = Json(project_).dump(), name = Json(run.name).dump();
  std::string text, timestamp = last_timestamp_;
  for (const TrackedRow& row : rows) {
    timestamp = std::max(timestamp, row.timestamp);
    const bool is_first = files_ == 0 && text.empty();
    text += fmt::format(
        R"({{"v":1,"kind":"metric","project":{},"run":{},"run_id":"{}","metrics":{},"step":{},)"
        R"("timestamp":"{}","config":{},"log_id":"{}"}})"
        "\n",
        project, name, run.id, row.metrics, row.step, timestamp, is_first ? config.json : "null",
        row.log_id);
  }
  return text;
}

}  // namespace lerobot::train
