#include "lerobot/train/tracking/trackio_identity.h"

#include <algorithm>
#include <system_error>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/base/log.h"
#include "lerobot/base/utf8.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "trackio.json";

/// The text under `key`; nothing when it is absent, empty or of another type.
std::optional<std::string> text_of(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return std::nullopt;
  const std::string text = object[key];
  if (text.empty()) return std::nullopt;
  return text;
}

/// Whether the run was last started for that folder.
bool belongs_to(const TrackioDatabase& project, const TrackedRun& run,
                const std::string& output_dir) {
  const auto config = project.config_of(run.id);
  return config && text_of(*config, "output_dir") == output_dir;
}

}  // namespace

std::optional<RememberedRun> remembered_run(const fs::path& output_dir) {
  const fs::path file = output_dir / kFile;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return std::nullopt;
  try {
    const Json object = read_json_file(file);
    const auto project = text_of(object, "project"), id = text_of(object, "run_id"),
               name = text_of(object, "run_name");
    if (!project || !id || !name) fail("{}: says no project, run_id or run_name", file.string());
    return RememberedRun{*project, {*id, *name}};
  } catch (const Error& error) {
    log::warning("{}; looking for the tracked run by its name", error.what());
    return std::nullopt;
  }
}

void remember_run(const fs::path& output_dir, const RememberedRun& remembered) {
  const Json object = {{"project", remembered.project},
                       {"run_id", remembered.run.id},
                       {"run_name", remembered.run.name}};
  write_file_atomic(output_dir / kFile, to_python_json(object, 4) + "\n");
}

TrackedRun new_run(const std::string& name) { return {random_tracking_id(), name}; }

std::string default_run_name(const fs::path& output_dir, const std::string& job_name) {
  fs::path last = output_dir.lexically_normal();
  if (!last.has_filename()) last = last.parent_path();  // a slash at the end
  const std::string name = last.filename().string();
  return to_utf8(name.empty() || name == "." || name == ".." ? job_name : name);
}

std::optional<TrackedRun> continued_run(const TrackioDatabase* project,
                                        const std::optional<TrackedRun>& remembered,
                                        const std::string& name, const std::string& output_dir) {
  if (project != nullptr) {
    if (remembered)
      if (auto run = project->run_with_id(remembered->id)) return run;
    auto run = project->latest_run_named(name);
    if (run && (!remembered || belongs_to(*project, *run, output_dir))) return run;
  }
  return remembered;
}

}  // namespace lerobot::train
