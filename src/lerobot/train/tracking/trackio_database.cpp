#include "lerobot/train/tracking/trackio_database.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/train/tracking/sqlite.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSchemaVersion = 2;

// The tables that trainers write in trackio. A dashboard adds the others, of artifacts and traces,
// when it is started.
constexpr const char* kTables = R"(
CREATE TABLE IF NOT EXISTS metrics (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE IF NOT EXISTS configs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
  config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE (run_id));
CREATE TABLE IF NOT EXISTS system_metrics (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE IF NOT EXISTS alerts (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, title TEXT NOT NULL, text TEXT, level TEXT NOT NULL DEFAULT 'warn',
  step INTEGER, alert_id TEXT);
CREATE TABLE IF NOT EXISTS project_metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL);
)";

// trackio finds runs fast by idx_metrics_run_record, which it asks for by name.
constexpr const char* kIndexes = R"(
CREATE INDEX IF NOT EXISTS idx_metrics_run_step ON metrics (run_id, step);
CREATE INDEX IF NOT EXISTS idx_metrics_run_timestamp ON metrics (run_id, timestamp);
CREATE INDEX IF NOT EXISTS idx_metrics_run_record ON metrics (run_id, run_name, timestamp);
CREATE UNIQUE INDEX IF NOT EXISTS idx_metrics_log_id ON metrics (log_id) WHERE log_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_metrics_pending ON metrics (space_id) WHERE space_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_configs_run_name ON configs (run_name);
CREATE INDEX IF NOT EXISTS idx_system_metrics_run_timestamp ON system_metrics (run_id, timestamp);
CREATE UNIQUE INDEX IF NOT EXISTS idx_system_metrics_log_id ON system_metrics (log_id)
  WHERE log_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_system_metrics_pending ON system_metrics (space_id)
  WHERE space_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_alerts_run ON alerts (run_id);
CREATE INDEX IF NOT EXISTS idx_alerts_timestamp ON alerts (timestamp);
CREATE UNIQUE INDEX IF NOT EXISTS idx_alerts_alert_id ON alerts (alert_id)
  WHERE alert_id IS NOT NULL;
)";

/// SQLite's busy handler: called with the number of calls before for the same lock.
int wait_for_others(void* patience, int calls) {
  constexpr std::chrono::milliseconds kStep(5);
  const auto& [limit, gives_up, goes_on_unlocked] = *static_cast<const LockPatience*>(patience);
  if (calls * kStep >= limit || gives_up()) return 0;
  std::this_thread::sleep_for(kStep);
  return 1;
}

/// A mode that trackio lets users choose, for all writers alike.
std::string mode_of(const char* variable, std::initializer_list<std::string_view> known,
                    const char* standard) {
  const char* const value = std::getenv(variable);
  std::string mode = value != nullptr ? value : "";
  std::transform(mode.begin(), mode.end(), mode.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(known.begin(), known.end(), mode) != known.end() ? mode : standard;
}

}  // namespace

void TrackioDatabase::Close::operator()(sqlite3* connection) const {
  (void)::sqlite3_close_v2(connection);
}

TrackioDatabase::TrackioDatabase(const TrackioPlace& place, Mode mode, LockPatience patience)
    : place_(place), patience_(std::make_unique<LockPatience>(std::move(patience))) {
  const bool writes = mode == Mode::kReadWrite;
  if (writes) make_directories(place.folder);
  const std::optional<FileLock> lock = writes ? take_lock() : std::nullopt;
  sqlite3* connection = nullptr;
  const int opened =
      ::sqlite3_open_v2(place.database().c_str(), &connection,
                        SQLITE_OPEN_NOMUTEX | (writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                                                      : SQLITE_OPEN_READONLY),
                        nullptr);
  connection_.reset(connection);
  if (connection == nullptr) fail("{}: no memory to open it", place.database().string());
  if (opened != SQLITE_OK) fail_sqlite(connection, place.database().string());
  ::sqlite3_extended_result_codes(connection, 1);
  ::sqlite3_busy_handler(connection, wait_for_others, patience_.get());
  if (!writes) return;
  choose_modes();
  create_schema();
  identity_ = identity_of_file();
}

TrackioDatabase::~TrackioDatabase() = default;

std::optional<FileLock> TrackioDatabase::take_lock() const {
  std::optional<FileLock> lock;
  try {
    lock = FileLock::acquire(place_.lock_file(), patience_->limit, [this] {
      if (patience_->gives_up()) fail("{}: another process holds the lock", path_of_lock());
    });
  } catch (const SystemError&) {
    // A file system without locks, or files that aren't ours: SQLite says which, in its own words.
    return std::nullopt;
  }
  if (!lock && !patience_->goes_on_unlocked)
    fail("{}: another process has held the lock for more than {} s", path_of_lock(),
         patience_->limit.count());
  return lock;
}

std::string TrackioDatabase::path_of_lock() const { return place_.lock_file().string(); }

/// A killed process loses nothing that was committed; a power cut may take the last commits along.
void TrackioDatabase::choose_modes() {
  const std::string journal =
      mode_of("TRACKIO_SQLITE_JOURNAL_MODE",
              {"wal", "delete", "truncate", "persist", "memory", "off"}, "wal");
  const std::string synchronous =
      mode_of("TRACKIO_SQLITE_SYNCHRONOUS", {"off", "normal", "full", "extra"}, "normal");
  execute(connection_.get(), fmt::format("PRAGMA journal_mode = {}", journal).c_str());
  execute(connection_.get(), fmt::format("PRAGMA synchronous = {}", synchronous).c_str());
}

bool TrackioDatabase::has_column(const char* table, const char* column) const {
  Statement columns(connection_.get(), "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2");
  return columns.bind(1, std::string_view(table)).bind(2, std::string_view(column)).step();
}

void TrackioDatabase::add_column(const char* table, const char* column) {
  if (has_column(table, column)) return;
  execute(connection_.get(),
          fmt::format("ALTER TABLE {} ADD COLUMN {} TEXT", table, column).c_str());
}

void TrackioDatabase::create_schema() {
  WriteTransaction transaction(connection_.get());
  // Any column: the table is there.
  if (has_column("metrics", "metrics") && !has_column("metrics", "run_id"))
    fail(
        "{}: was written by a trackio older than 0.24; open it once with a current one: `trackio "
        "show --project {}`",
        place_.database().string(), place_.project);
  execute(connection_.get(), kTables);
  for (const char* table : {"metrics", "system_metrics"})
    for (const char* column : {"log_id", "space_id"}) add_column(table, column);
  execute(connection_.get(), kIndexes);
  if (schema_version() < kSchemaVersion)
    execute(connection_.get(), fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
  transaction.commit();
}

std::int64_t TrackioDatabase::schema_version() const {
  Statement version(connection_.get(), "PRAGMA user_version");
  return version.step() ? version.integer(0) : 0;
}

std::optional<TrackedRun> TrackioDatabase::run_with_id(const std::string& id) const {
  Statement newest(connection_.get(),
                   "SELECT run_name FROM metrics WHERE run_id = ?1 "
                   "ORDER BY timestamp DESC, id DESC LIMIT 1");
  if (!newest.bind(1, id).step()) return std::nullopt;
  return TrackedRun{id, newest.text(0).value_or("")};
}

std::optional<TrackedRun> TrackioDatabase::latest_run_named(const std::string& name) const {
  Statement latest(connection_.get(),
                   "SELECT run_id FROM metrics WHERE run_name = ?1 GROUP BY run_id "
                   "ORDER BY min(timestamp) DESC LIMIT 1");
  if (!latest.bind(1, name).step()) return std::nullopt;
  return TrackedRun{latest.text(0).value_or(""), name};
}

std::optional<Json> TrackioDatabase::config_of(const std::string& id) const {
  Statement config(connection_.get(), "SELECT config FROM configs WHERE run_id = ?1");
  if (!config.bind(1, id).step()) return std::nullopt;
  Json json = Json::parse(config.text(0).value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

std::string TrackioDatabase::last_timestamp(const std::string& id) const {
  Statement last(connection_.get(), "SELECT max(timestamp) FROM metrics WHERE run_id = ?1");
  return last.bind(1, id).step() ? last.text(0).value_or("") : "";
}

void TrackioDatabase::write(const TrackedRun& run, std::span<const TrackedRow> rows,
                            const TrackedConfig& config) {
  const std::optional<FileLock> lock = take_lock();
  WriteTransaction transaction(connection_.get());
  const std::string name = run_with_id(run.id).value_or(run).name;
  std::string timestamp = last_timestamp(run.id);
  Statement insert(connection_.get(),
                   "INSERT OR IGNORE INTO metrics (run_id, timestamp, run_name, step, metrics, "
                   "log_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
  for (const TrackedRow& row : rows) {
    timestamp = std::max(timestamp, row.timestamp);
    insert.bind(1, run.id).bind(2, timestamp).bind(3, name).bind(4, row.step);
    insert.bind_blob(5, row.metrics).bind(6, row.log_id).step();
    insert.reset();
  }
  if (!config_is_written_) {
    Statement replace(connection_.get(),
                      "INSERT OR REPLACE INTO configs (run_id, run_name, config, created_at) "
                      "VALUES (?1, ?2, ?3, ?4)");
    replace.bind(1, run.id).bind(2, name).bind_blob(3, config.json).bind(4, config.created_at);
    replace.step();
  }
  transaction.commit();
  config_is_written_ = true;
}

std::optional<TrackioDatabase::FileIdentity> TrackioDatabase::identity_of_file() const {
  struct stat file {};
  if (::stat(place_.database().c_str(), &file) != 0) return std::nullopt;
  return FileIdentity{file.st_dev, file.st_ino};
}

bool TrackioDatabase::is_in_place() const { return identity_of_file() == identity_; }

}  // namespace lerobot::train
