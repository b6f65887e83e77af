// Where trackio (0.43) keeps what it knows about a project on this machine.
//
//   <folder>/<project>.db      SQLite, in WAL mode; every *.db here counts as a project
//   <folder>/<project>.lock    flock'ed around writes, by trackio as well
//   <folder>/inbox/<writer>/   files of rows that a dashboard brings into the database
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lerobot::train {

struct TrackioPlace {
  enum class Storage {
    kDatabase,
    /// Several machines can't share a SQLite file over a network file system.
    kInbox,
  };

  std::filesystem::path folder;
  std::string project;  ///< as files are named
  Storage storage = Storage::kDatabase;

  std::filesystem::path database() const { return folder / (project + ".db"); }
  std::filesystem::path lock_file() const { return folder / (project + ".lock"); }
  std::filesystem::path inbox() const { return folder / "inbox"; }
};

/// TRACKIO_DIR as it stands (trackio expands nothing in it), else HF_HOME/trackio. Unlike for
/// hub::hf_home(), an HF_HOME that is set and empty is the working directory: trackio's commands
/// look there.
std::filesystem::path trackio_folder();

/// Where a project named `project` is; TRACKIO_STORAGE_MODE chooses the storage (auto, sqlite,
/// jsonl; anything else warns and counts as auto). Creates nothing.
TrackioPlace trackio_place(const std::string& project);

/// Whether an absolute path lies on a network file system, by the lines of /proc/mounts.
bool is_on_network(const std::filesystem::path& path, std::string_view mounts);

}  // namespace lerobot::train
