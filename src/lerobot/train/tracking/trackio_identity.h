// Which run of a project a training run is: a new one, or the one that it goes on with.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lerobot/train/tracking/trackio_database.h"

namespace lerobot::train {

/// What an output folder remembers of its run, so that a/run and b/run are never taken for each
/// other (trackio.json).
struct RememberedRun {
  std::string project;  ///< canonical
  TrackedRun run;
};

/// Nothing when there is no such file, or (with a warning) a damaged one.
std::optional<RememberedRun> remembered_run(const std::filesystem::path& output_dir);
/// Throws Error naming the file.
void remember_run(const std::filesystem::path& output_dir, const RememberedRun& remembered);

/// A run that is new under any name.
TrackedRun new_run(const std::string& name);

/// The name that a run has unless the user gives one: LeRobot's, the last component of its folder;
/// of a folder without one ("."), `job_name`.
std::string default_run_name(const std::filesystem::path& output_dir, const std::string& job_name);

/// The run that a resumed training goes on with:
///   - the remembered one, when it has rows (under the name that it has there now),
///   - else the latest one of that name; but not another folder's when ours is remembered, whose
///     rows may have been deleted or not have come yet,
///   - else the remembered one; nothing without one.
/// `project` is null when there is none to look into.
std::optional<TrackedRun> continued_run(const TrackioDatabase* project,
                                        const std::optional<TrackedRun>& remembered,
                                        const std::string& name, const std::string& output_dir);

}  // namespace lerobot::train
