// A project of trackio: one SQLite file that trackio's commands, dashboards and other trainers read
// and write at the same time. Schema 2, of trackio 0.43; rows of newer ones are added the same way.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lerobot/base/file_lock.h"
#include "lerobot/base/json.h"
#include "lerobot/train/tracking/trackio_place.h"
#include "lerobot/train/tracking/trackio_rows.h"

struct sqlite3;

namespace lerobot::train {

/// How long to wait for others that hold the lock file, and for those that hold the database.
struct LockPatience {
  /// As long as trackio itself waits for the lock file.
  std::chrono::duration<double> limit = std::chrono::seconds(10);
  /// Asked while waiting: true gives up at once.
  std::function<bool()> gives_up = [] { return false; };
  /// The lock file is a courtesy, which spares others a wait inside SQLite; SQLite's own locks keep
  /// the file whole. True: when the time is over, go on without it.
  bool goes_on_unlocked = false;
};

/// Not thread-safe; locks are held for milliseconds. Every function throws Error that names the
/// file and says what is wrong with it.
class TrackioDatabase : public TrackedRows {
 public:
  enum class Mode { kReadWrite, kReadOnly };

  /// Opens the project; kReadWrite creates file, tables and indexes that are missing, and leaves
  /// alone what a trackio before 0.24 wrote, with an Error that says how to bring it up to date.
  TrackioDatabase(const TrackioPlace& place, Mode mode, LockPatience patience);
  ~TrackioDatabase() override;

  /// The run with that id, under the name of its last row: somebody may have renamed it.
  std::optional<TrackedRun> run_with_id(const std::string& id) const;
  /// Of the runs with that name the one that began last.
  std::optional<TrackedRun> latest_run_named(const std::string& name) const;
  /// What was written at the run's last start; nothing when there is none that can be read.
  std::optional<Json> config_of(const std::string& id) const;

  /// Rows of a run are never older than those before them: a clock that was set back doesn't
  /// change their order. A run that was renamed meanwhile keeps its new name.
  void write(const TrackedRun& run, std::span<const TrackedRow> rows,
             const TrackedConfig& config) override;

  /// False when the file has been removed or replaced since it was opened.
  bool is_in_place() const;

  void set_patience(LockPatience patience) { *patience_ = std::move(patience); }

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
  };
  /// Of the file itself, told apart from another one of its name.
  struct FileIdentity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    bool operator==(const FileIdentity&) const = default;
  };

  std::optional<FileIdentity> identity_of_file() const;
  std::optional<FileLock> take_lock() const;
  std::string path_of_lock() const;
  void choose_modes();
  void create_schema();
  std::int64_t schema_version() const;
  bool has_column(const char* table, const char* column) const;
  void add_column(const char* table, const char* column);
  std::string last_timestamp(const std::string& id) const;

  TrackioPlace place_;
  std::unique_ptr<LockPatience> patience_;  // SQLite's busy handler keeps its address
  std::unique_ptr<sqlite3, Close> connection_;
  std::optional<FileIdentity> identity_;
  bool config_is_written_ = false;
};

}  // namespace lerobot::train
