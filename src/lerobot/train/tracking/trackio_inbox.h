// Rows for a project whose folder several machines share: files that never change, each written by
// one process, which a running dashboard brings into the database and deletes (trackio 0.43:
// "fragments").
//
//   <inbox>/<writer>/00000000.jsonl   one row a line; the configuration is with the first
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lerobot/train/tracking/trackio_rows.h"

namespace lerobot::train {

class TrackioInbox : public TrackedRows {
 public:
  /// `project` as the user wrote it. Creates nothing.
  TrackioInbox(std::filesystem::path inbox, std::string project);

  void write(const TrackedRun& run, std::span<const TrackedRow> rows,
             const TrackedConfig& config) override;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::string lines(const TrackedRun& run, std::span<const TrackedRow> rows,
                    const TrackedConfig& config) const;

  std::filesystem::path folder_;
  std::string project_;
  std::string last_timestamp_;
  std::int64_t files_ = 0;
};

}  // namespace lerobot::train
