#include "lerobot/train/tracking/trackio_database.h"

#include <csignal>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <gmock/gmock.h>

#include "tests/checkpoint/test_process.h"
#include "tests/support/error_of.h"
#include "tests/train/trackio_fixture.h"

namespace lerobot::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kShort(150);

class TrackioDatabaseTest : public TrackioTest {
 protected:
  static constexpr auto kReadWrite = TrackioDatabase::Mode::kReadWrite;

  TrackioDatabase open(const std::string& project = "lerobot", LockPatience patience = {}) const {
    return TrackioDatabase(place(project), kReadWrite, std::move(patience));
  }
  std::string error_of_opening(const LockPatience& patience = {.limit = kShort}) const {
    return error_of([&] { open("lerobot", patience); });
  }

  /// Columns and indexes of a table, as SQLite understands them.
  static std::vector<Row> description(const fs::path& file, const std::string& table) {
    auto rows =
        query(file, "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('" +
                        table + "')");
    const auto indexes = query(
        file,
        "SELECT i.name, i.\"unique\", i.partial, group_concat(x.name) FROM pragma_index_list('" +
            table + "') i, pragma_index_info(i.name) x GROUP BY i.name ORDER BY i.name");
    rows.insert(rows.end(), indexes.begin(), indexes.end());
    return rows;
  }
};

TEST_F(TrackioDatabaseTest, AFreshOneHasTheTablesAndIndexesOfTheRealTrackio) {
  open();
  put_demo("demo");
  for (const char* table : {"metrics", "configs", "system_metrics", "alerts", "project_metadata"})
    EXPECT_EQ(description(database(), table), description(database("demo"), table)) << table;
  for (const char* setting : {"PRAGMA user_version", "PRAGMA application_id", "PRAGMA page_size",
                              "PRAGMA encoding", "PRAGMA auto_vacuum", "PRAGMA journal_mode"})
    EXPECT_EQ(value(database(), setting), value(database("demo"), setting)) << setting;
  EXPECT_EQ(value(database(), "PRAGMA journal_mode"), "wal");
}

TEST_F(TrackioDatabaseTest, OpeningTheRealOneChangesNothingInIt) {
  put_demo("demo");
  const auto schema = [&] { return query(database("demo"), "SELECT * FROM sqlite_schema"); };
  const auto before = schema();
  open("demo");
  EXPECT_EQ(schema(), before);
  EXPECT_EQ(value(database("demo"), "SELECT count(*) FROM metrics"), "15");
}

TEST_F(TrackioDatabaseTest, RowsAreWhatTrackioWrites) {
  const TrackedRun run{"0123456789abcdef0123456789abcdef", "15-30-14_act"};
  const std::vector<TrackedRow> written = {row(10, R"({"train/loss":0.5})"),
                                           row(10, R"({"eval/eval_loss":0.25})")};
  TrackedConfig first = config();
  {
    TrackioDatabase project = open();
    project.write(run, written, first);
    project.write(run, {}, config("never read"));
  }
  EXPECT_FALSE(fs::exists(database() += "-wal"));
  const auto found = query(
      database(),
      "SELECT run_id, timestamp, run_name, step, CAST(metrics AS TEXT), typeof(metrics), log_id, "
      "space_id FROM metrics ORDER BY id");
  ASSERT_EQ(found.size(), 2U);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_THAT(found[i], ElementsAre(run.id, written[i].timestamp, run.name, "10",
                                      written[i].metrics, "blob", written[i].log_id, "NULL"));
  EXPECT_THAT(query(database(),
                    "SELECT run_id, run_name, CAST(config AS TEXT), typeof(config), created_at "
                    "FROM configs"),
              ElementsAre(ElementsAre(run.id, run.name, first.json, "blob", first.created_at)));
}

TEST_F(TrackioDatabaseTest, AnotherStartReplacesTheConfigurationOfTheRun) {
  const TrackedRun run = {"a", "name"};
  open().write(run, rows(1, 1), config("first"));
  open().write(run, rows(2, 2), config("second"));
  EXPECT_EQ(value(database(), "SELECT CAST(config AS TEXT) FROM configs"), config("second").json);
  EXPECT_EQ(open().config_of("a")->at("output_dir"), "second");
  EXPECT_FALSE(open().config_of("b"));
}

TEST_F(TrackioDatabaseTest, ARowThatComesTwiceIsKeptOnce) {
  const std::vector<TrackedRow> once = rows(1, 3);
  TrackioDatabase project = open();
  project.write({"a", "name"}, once, config());
  project.write({"a", "name"}, once, config());
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "3");
}

TEST_F(TrackioDatabaseTest, AClockThatWasSetBackKeepsTheOrderOfRows) {
  std::vector<TrackedRow> early = rows(1, 3);
  early[0].timestamp = "2999-01-01T00:00:00.000000+00:00";
  open().write({"a", "name"}, early, config());
  open().write({"a", "name"}, rows(4, 4), config());
  open().write({"b", "other"}, rows(1, 1), config());
  EXPECT_EQ(value(database(), "SELECT count(DISTINCT timestamp) FROM metrics WHERE run_id = 'a'"),
            "1");
  EXPECT_EQ(value(database(),
                  "SELECT group_concat(step) FROM (SELECT step FROM metrics WHERE "
                  "run_id = 'a' ORDER BY timestamp, id)"),
            "1,2,3,4");
  EXPECT_LT(value(database(), "SELECT timestamp FROM metrics WHERE run_id = 'b'"), "2999");
}

TEST_F(TrackioDatabaseTest, ARunThatWasRenamedMeanwhileKeepsItsNewName) {
  TrackioDatabase project = open();
  project.write({"a", "name"}, rows(1, 1), config());
  query(database(), "UPDATE metrics SET run_name = 'better'");
  project.write({"a", "name"}, rows(2, 2), config());
  EXPECT_EQ(value(database(), "SELECT DISTINCT run_name FROM metrics"), "better");
  EXPECT_EQ(project.run_with_id("a")->name, "better");
}

TEST_F(TrackioDatabaseTest, FindsRunsOfTheRealTrackioByNameAndById) {
  put_demo("demo");
  const TrackioDatabase demo = open("demo");
  EXPECT_EQ(demo.latest_run_named(kDemoRun)->id, kDemoId);
  EXPECT_EQ(demo.run_with_id(kDemoId)->name, kDemoRun);
  EXPECT_FALSE(demo.latest_run_named("15-30-14"));
  EXPECT_FALSE(demo.run_with_id("0"));
  EXPECT_EQ((*demo.config_of(kDemoId))["_Group"], "policy:act-seed:1000-dataset:lerobot/pusht");
}

TEST_F(TrackioDatabaseTest, OfSeveralRunsOfANameTheOneThatBeganLastIsTaken) {
  open().write({"early", "name"}, rows(1, 1), config());
  open().write({"late", "name"}, rows(1, 1), config());
  open().write({"early", "name"}, rows(2, 2), config());
  EXPECT_EQ(open().latest_run_named("name")->id, "late");
}

TEST_F(TrackioDatabaseTest, AddsWhatASlightlyOlderOneLacks) {
  fs::create_directories(trackio());
  query(
      database(),
      "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp "
      "TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL);"
      "INSERT INTO metrics VALUES (1, 'a', '2026-01-01T00:00:00.000000+00:00', 'name', 1, '{}');"
      "PRAGMA user_version = 1");
  open().write({"a", "name"}, rows(2, 2), config());
  put_demo("demo");
  EXPECT_EQ(description(database(), "metrics"), description(database("demo"), "metrics"));
  EXPECT_EQ(value(database(), "PRAGMA user_version"), "2");
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "2");
}

TEST_F(TrackioDatabaseTest, ANewerSchemaStaysWhatItIs) {
  put_demo("lerobot");
  query(database(), "PRAGMA user_version = 3; ALTER TABLE metrics ADD COLUMN future TEXT");
  open().write({"a", "name"}, rows(1, 1), config());
  EXPECT_EQ(value(database(), "PRAGMA user_version"), "3");
}

TEST_F(TrackioDatabaseTest, OneFromBeforeRunIdsIsLeftAloneWithAWayOut) {
  fs::create_directories(trackio());
  query(
      database(),
      "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT, run_name TEXT, "
      "step INTEGER, metrics TEXT)");
  EXPECT_EQ(error_of_opening(),
            database().string() +
                ": was written by a trackio older than 0.24; open it once with a current one: "
                "`trackio show --project lerobot`");
  EXPECT_EQ(value(database(), "SELECT count(*) FROM sqlite_schema WHERE type = 'table'"), "2");
  EXPECT_EQ(value(database(), "PRAGMA user_version"), "0");
}

TEST_F(TrackioDatabaseTest, AFileThatIsNoDatabaseIsNamedAndLeftAlone) {
  fs::create_directories(trackio());
  const std::string text(5000, 'x');
  write_file_atomic(database(), text);
  EXPECT_THAT(error_of_opening(),
              AllOf(HasSubstr(database().string()), HasSubstr("damaged, or no database"),
                    HasSubstr("move it away"), HasSubstr("file is not a database")));
  EXPECT_EQ(read_text_file(database()), text);
}

TEST_F(TrackioDatabaseTest, ADamagedOneIsNamed) {
  open().write({"a", "name"}, rows(1, 400), config());
  const auto size = fs::file_size(database());
  fs::resize_file(database(), size / 2);
  EXPECT_THAT(error_of([&] {
                open().write({"a", "name"}, rows(1, 400), config());
              }),
              AllOf(HasSubstr(database().string()), HasSubstr("damaged")));
}

TEST_F(TrackioDatabaseTest, SomebodyElsesDatabaseGetsTrackiosTablesBesideItsOwn) {
  fs::create_directories(trackio());
  query(database(), "CREATE TABLE mine (a); INSERT INTO mine VALUES (1)");
  open().write({"a", "name"}, rows(1, 1), config());
  EXPECT_EQ(value(database(), "SELECT a FROM mine"), "1");
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "1");
}

TEST_F(TrackioDatabaseTest, ALockThatIsHeldTooLongIsAnErrorUnlessItIsOnlyACourtesy) {
  TrackioDatabase project = open();
  project.set_patience({.limit = kShort});
  const UniqueFd lock(::open(place().lock_file().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  EXPECT_EQ(
      error_of([&] {
        project.write({"a", "name"}, rows(1, 1), config());
      }),
      place().lock_file().string() + ": another process has held the lock for more than 0.15 s");
  EXPECT_THAT(error_of_opening(), HasSubstr("has held the lock"));
  project.set_patience({.limit = kShort, .goes_on_unlocked = true});
  project.write({"a", "name"}, rows(1, 1), config());
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "1");
}

TEST_F(TrackioDatabaseTest, AShortWaitForOthersIsNoError) {
  TrackioDatabase project = open();
  auto lock = std::make_unique<UniqueFd>(::open(place().lock_file().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock->get(), LOCK_EX), 0);
  int asked = 0;
  project.set_patience({.limit = std::chrono::seconds(10), .gives_up = [&] {
                          if (++asked == 2) lock.reset();
                          return false;
                        }});
  project.write({"a", "name"}, rows(1, 1), config());
  EXPECT_EQ(asked, 2);
}

TEST_F(TrackioDatabaseTest, ATransactionOfSomebodyElseIsWaitedForAsLongAsWanted) {
  TrackioDatabase project = open();
  const Connection other(database());
  other.run("BEGIN IMMEDIATE");
  project.set_patience({.limit = kShort});
  EXPECT_EQ(
      error_of([&] {
        project.write({"a", "name"}, rows(1, 1), config());
      }),
      database().string() + ": another process keeps the database locked (database is locked)");
  int asked = 0;
  project.set_patience({.limit = std::chrono::seconds(10), .gives_up = [&] {
                          if (++asked == 3) other.run("COMMIT");
                          return false;
                        }});
  project.write({"a", "name"}, rows(1, 1), config());
  other.run("BEGIN IMMEDIATE");
  project.set_patience({.limit = std::chrono::hours(1), .gives_up = [] { return true; }});
  EXPECT_THAT(error_of([&] {
                project.write({"a", "name"}, rows(2, 2), config());
              }),
              HasSubstr("locked"));
  other.run("ROLLBACK");
}

TEST_F(TrackioDatabaseTest, AReaderInTheMiddleOfItsTransactionIsNoObstacle) {
  TrackioDatabase project = open();
  project.write({"a", "name"}, rows(1, 1), config());
  const Connection reader(database());
  reader.run("BEGIN; SELECT * FROM metrics");
  project.set_patience({.limit = kShort});
  project.write({"a", "name"}, rows(2, 2), config());
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "2");
  reader.run("ROLLBACK");
}

TEST_F(TrackioDatabaseTest, IndexesThatTrackioMakesAnewDoNotDisturbAnOpenOne) {
  TrackioDatabase project = open();
  project.write({"a", "name"}, rows(1, 1), config());
  query(database(),
        "DROP INDEX idx_metrics_pending;"
        "CREATE INDEX idx_metrics_pending ON metrics(space_id) WHERE space_id NOT NULL");
  project.write({"a", "name"}, rows(2, 2), config());
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "2");
}

TEST_F(TrackioDatabaseTest, SeveralProcessesThatStartAtOnceLoseNothing) {
  constexpr int kProcesses = 4, kTransactions = 40;
  const fs::path gate = folder_ / "gate";
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    while (!fs::exists(gate)) ::usleep(1000);
    const TrackedRun run{fmt::format("id{}", process), "name"};
    const std::string error = error_of([&] {
      TrackioDatabase project = open();
      for (int i = 0; i < kTransactions; ++i) project.write(run, rows(i, i), config());
    });
    ::_exit(error == "no error" ? 0 : 1);
  }
  write_file_atomic(gate, "");
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"),
            std::to_string(kProcesses * kTransactions));
  EXPECT_EQ(value(database(), "SELECT count(*) FROM configs"), std::to_string(kProcesses));
  EXPECT_EQ(value(database(), "PRAGMA integrity_check"), "ok");
}

TEST_F(TrackioDatabaseTest, AKilledProcessLosesNothingThatWasCommitted) {
  const pid_t child = ::fork();
  if (child == 0) {
    TrackioDatabase project = open();
    project.write({"a", "name"}, rows(1, 50), config());
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(database() += "-wal"));
  open().write({"a", "name"}, rows(51, 51), config());
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "51");
  EXPECT_EQ(value(database(), "PRAGMA integrity_check"), "ok");
}

TEST_F(TrackioDatabaseTest, AFolderThatIsNotOursIsNamed) {
  fs::create_directories(trackio());
  fs::permissions(folder_, fs::perms(0755));
  fs::permissions(trackio(), fs::perms(0555));
  const std::string message = in_child([&] {
    constexpr uid_t kNobody = 65534;
    if (::getuid() == 0 && ::setuid(kNobody) != 0) return std::string("setuid");
    return error_of_opening();
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr(database().string()), HasSubstr("can't be opened for writing")));
}

TEST_F(TrackioDatabaseTest, ANameThatIsTakenByAFileIsNamed) {
  write_file_atomic(trackio(), "");
  EXPECT_THAT(error_of_opening(),
              AllOf(HasSubstr(trackio().string()), HasSubstr("cannot create the directory")));
}

TEST_F(TrackioDatabaseTest, AReadOnlyOneCreatesNothing) {
  EXPECT_NE(error_of([&] { TrackioDatabase(place(), TrackioDatabase::Mode::kReadOnly, {}); }),
            "no error");
  EXPECT_FALSE(fs::exists(trackio()));
  put_demo("demo");
  const TrackioDatabase demo(place("demo"), TrackioDatabase::Mode::kReadOnly, {});
  EXPECT_EQ(demo.latest_run_named(kDemoRun)->id, kDemoId);
  EXPECT_FALSE(fs::exists(place("demo").lock_file()));
}

TEST_F(TrackioDatabaseTest, TheModesThatTrackioLetsUsersChooseAreKept) {
  ::setenv("TRACKIO_SQLITE_JOURNAL_MODE", "DELETE", 1);
  open().write({"a", "name"}, rows(1, 1), config());
  EXPECT_EQ(value(database(), "PRAGMA journal_mode"), "delete");
  ::setenv("TRACKIO_SQLITE_JOURNAL_MODE", "x; DROP TABLE metrics", 1);
  open();
  EXPECT_EQ(value(database(), "PRAGMA journal_mode"), "wal");
}

TEST_F(TrackioDatabaseTest, NoticesThatItsFileWasRemovedOrReplaced) {
  const TrackioDatabase project = open();
  EXPECT_TRUE(project.is_in_place());
  fs::rename(database(), folder_ / "elsewhere");
  EXPECT_FALSE(project.is_in_place());
  write_file_atomic(database(), "");
  EXPECT_FALSE(project.is_in_place());
}

/// A file system of 400 kB, where this process may mount one.
class TrackioSmallDisk : public TrackioDatabaseTest {
 protected:
  TrackioSmallDisk() {
    fs::create_directories(trackio());
    mounted_ = ::mount("tmpfs", trackio().c_str(), "tmpfs", 0, "size=400k") == 0;
  }
  ~TrackioSmallDisk() override {
    if (mounted_) ::umount2(trackio().c_str(), MNT_DETACH);
  }
  void SetUp() override {
    if (!mounted_) GTEST_SKIP() << "mounting needs root";
  }
  bool mounted_;
};

TEST_F(TrackioSmallDisk, AFullDiskIsAnErrorAndWhatWasThereStays) {
  TrackioDatabase project = open();
  project.write({"a", "name"}, rows(1, 1), config());
  EXPECT_THAT(error_of([&] {
                project.write({"a", "name"}, rows(2, 5000), config());
              }),
              AllOf(HasSubstr(database().string()), HasSubstr("no space left for the database")));
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "1");
  EXPECT_EQ(value(database(), "PRAGMA integrity_check"), "ok");
}

TEST_F(TrackioSmallDisk, ADiskThatBecomesReadOnlyIsAnError) {
  open().write({"a", "name"}, rows(1, 1), config());
  ASSERT_EQ(::mount("", trackio().c_str(), "", MS_REMOUNT | MS_RDONLY, ""), 0);
  EXPECT_THAT(error_of_opening(),
              AllOf(HasSubstr(database().string()), HasSubstr("can't be opened")));
}

}  // namespace
}  // namespace lerobot::train
