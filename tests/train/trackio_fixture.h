// A trackio folder of a test's own, and a look into its databases that goes past our own code.
#pragma once

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "lerobot/base/files.h"
#include "lerobot/train/tracking/trackio_place.h"
#include "lerobot/train/tracking/trackio_rows.h"

namespace lerobot::train {

using Row = std::vector<std::string>;  // "NULL" for NULL

/// Rows of a query, or of statements that return none.
inline std::vector<Row> query(const fs::path& file, const std::string& sql) {
  sqlite3* connection = nullptr;
  std::vector<Row> rows;
  char* message = nullptr;
  const auto take = [](void* out, int count, char** values, char**) {
    Row row;
    for (int i = 0; i < count; ++i) row.emplace_back(values[i] != nullptr ? values[i] : "NULL");
    static_cast<std::vector<Row>*>(out)->push_back(std::move(row));
    return 0;
  };
  EXPECT_EQ(::sqlite3_open(file.c_str(), &connection), SQLITE_OK);
  ::sqlite3_busy_timeout(connection, 10'000);
  EXPECT_EQ(::sqlite3_exec(connection, sql.c_str(), take, &rows, &message), SQLITE_OK)
      << sql << ": " << (message != nullptr ? message : "");
  ::sqlite3_free(message);
  ::sqlite3_close(connection);
  return rows;
}

/// Of a query with one row of one column.
inline std::string value(const fs::path& file, const std::string& sql) {
  const auto rows = query(file, sql);
  return rows.size() == 1 && rows[0].size() == 1 ? rows[0][0] : fmt::format("{} rows", rows.size());
}

class TrackioTest : public ::testing::Test {
 protected:
  TrackioTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              fmt::format("trackio {}.{} {}", test->test_suite_name(), test->name(), ::getpid());
    fs::create_directories(folder_ / "out");
    for (auto& [name, value] : saved_) {
      if (const char* found = std::getenv(name)) value = found;
      ::unsetenv(name);
    }
    ::setenv("TRACKIO_DIR", trackio().c_str(), 1);
  }
  ~TrackioTest() override {
    for (const auto& [name, value] : saved_)
      value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path trackio() const { return folder_ / "trackio"; }
  fs::path database(const std::string& project = "lerobot") const {
    return trackio() / (project + ".db");
  }
  TrackioPlace place(const std::string& project = "lerobot") const {
    return {.folder = trackio(), .project = project, .storage = TrackioPlace::Storage::kDatabase};
  }

  /// A copy of the database that the real trackio wrote (tests/data/trackio/demo.db).
  void put_demo(const std::string& project) const {
    fs::create_directories(trackio());
    fs::copy_file(fs::path(LEROBOT_TEST_DATA) / "trackio/demo.db", database(project));
  }
  static constexpr const char* kDemoRun = "15-30-14_act";
  static constexpr const char* kDemoId = "0d7a138260324177ab5b28edc1e29a8e";

  static TrackedRow row(std::int64_t step, const std::string& metrics = R"({"train/loss":0.5})") {
    return {.log_id = random_tracking_id(),
            .timestamp = tracking_timestamp(std::chrono::system_clock::now()),
            .step = step,
            .metrics = metrics};
  }
  static std::vector<TrackedRow> rows(std::int64_t first, std::int64_t last) {
    std::vector<TrackedRow> all;
    for (std::int64_t step = first; step <= last; ++step) all.push_back(row(step));
    return all;
  }
  static TrackedConfig config(const std::string& output_dir = "out") {
    return {.json = fmt::format(R"({{"output_dir":"{}","_Username":null}})", output_dir),
            .created_at = tracking_timestamp(std::chrono::system_clock::now())};
  }

  fs::path folder_;

 private:
  std::array<std::pair<const char*, std::optional<std::string>>, 8> saved_ = {
      {{"TRACKIO_DIR", {}},
       {"HF_HOME", {}},
       {"XDG_CACHE_HOME", {}},
       {"TRACKIO_STORAGE_MODE", {}},
       {"TRACKIO_SERVER_URL", {}},
       {"TRACKIO_SPACE_ID", {}},
       {"TRACKIO_SQLITE_JOURNAL_MODE", {}},
       {"TRACKIO_SQLITE_SYNCHRONOUS", {}}}};
};

/// Somebody else's connection.
class Connection {
 public:
  explicit Connection(const fs::path& file) { ::sqlite3_open(file.c_str(), &connection_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { ::sqlite3_close(connection_); }
  void run(const char* sql) const {
    EXPECT_EQ(::sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sql << ": " << ::sqlite3_errmsg(connection_);
  }

 private:
  sqlite3* connection_ = nullptr;
};

}  // namespace lerobot::train
