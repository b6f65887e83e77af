#include "lerobot/train/tracking/trackio_writer.h"

#include <algorithm>
#include <fcntl.h>
#include <memory>
#include <sstream>
#include <sys/file.h>
#include <sys/mount.h>

#include <gmock/gmock.h>

#include "lerobot/base/json.h"
#include "tests/train/trackio_fixture.h"

namespace lerobot::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TrackioWriterTest : public TrackioTest {
 protected:
  void TearDown() override {
    if (capturing_) log();
  }

  std::string out(const std::string& name = "out") const {
    fs::create_directories(folder_ / name);
    return (folder_ / name).string();
  }
  TrackingPlan plan(const std::string& name, const std::string& folder = "out") const {
    return {.place = place(),
            .project = "lerobot",
            .name = name,
            .output_dir = out(folder),
            .config = config(out(folder))};
  }
  TrackingPlan resumed(const std::string& name, const std::string& folder = "out") const {
    TrackingPlan plan = this->plan(name, folder);
    plan.resumes = true;
    return plan;
  }
  static constexpr std::chrono::milliseconds kShort{100};
  static TrackingLimits limits() {
    return {.write_interval = std::chrono::milliseconds(0), .lock_wait = kShort};
  }
  static TrackioWriter writer(TrackingPlan plan,
                              TrackingLimits limits = TrackioWriterTest::limits()) {
    return TrackioWriter(std::move(plan), limits, [] { return false; });
  }
  /// A whole run of one row; its id.
  std::string track(TrackingPlan plan, std::int64_t step) const {
    const fs::path file = plan.place.database();
    TrackioWriter one = writer(std::move(plan));
    one.add(rows(step, step));
    one.finish();
    return value(file, fmt::format("SELECT run_id FROM metrics WHERE step = {}", step));
  }

  void capture() {
    ::testing::internal::CaptureStderr();
    capturing_ = true;
  }
  std::string log() {
    capturing_ = false;
    return ::testing::internal::GetCapturedStderr();
  }
  static int count(const std::string& text, const std::string& part) {
    int times = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
    return times;
  }
  std::string logged_steps() const {
    return value(
        database(),
        "SELECT group_concat(step) FROM (SELECT step FROM metrics ORDER BY timestamp, id)");
  }

 private:
  bool capturing_ = false;
};

// --- Which run it is ----------------------------------------------------------------------------

TEST_F(TrackioWriterTest, ANewRunNeverJoinsAnOldOneOfItsName) {
  const std::string first = track(plan("name", "a"), 1), second = track(plan("name", "b"), 2);
  EXPECT_NE(first, second);
  EXPECT_EQ(value(database(), "SELECT count(*) FROM configs"), "2");
}

TEST_F(TrackioWriterTest, AResumedRunGoesOnWithTheOneThatItsFolderRemembers) {
  const std::string a = track(plan("run", "a/run"), 1), b = track(plan("run", "b/run"), 2);
  EXPECT_EQ(track(resumed("run", "a/run"), 3), a);
  EXPECT_EQ(track(resumed("run", "b/run"), 4), b);
  // However often.
  EXPECT_EQ(track(resumed("run", "a/run"), 5), a);
  const Json remembered = read_json_file(fs::path(out("a/run")) / "trackio.json");
  EXPECT_EQ(remembered, Json({{"project", "lerobot"}, {"run_id", a}, {"run_name", "run"}}));
}

TEST_F(TrackioWriterTest, AFolderThatMovedGoesOnUnderTheOldName) {
  const std::string id = track(plan("before", "before"), 1);
  fs::rename(folder_ / "before", folder_ / "after");
  EXPECT_EQ(track(resumed("after", "after"), 2), id);
  EXPECT_EQ(value(database(), "SELECT DISTINCT run_name FROM metrics"), "before");
}

TEST_F(TrackioWriterTest, ARunOfTheRealTrackioGoesOnByItsName) {
  put_demo("lerobot");
  EXPECT_EQ(track(resumed(kDemoRun), 70), kDemoId);
  EXPECT_EQ(value(database(), fmt::format("SELECT count(*) FROM metrics WHERE run_id = '{}' AND "
                                          "run_name = '{}'",
                                          kDemoId, kDemoRun)),
            "9");
  EXPECT_EQ(value(database(), "SELECT count(*) FROM configs"), "2");
  EXPECT_EQ(value(database(), fmt::format("SELECT CAST(config AS TEXT) FROM configs WHERE run_id = "
                                          "'{}'",
                                          kDemoId)),
            config(out()).json);
}

TEST_F(TrackioWriterTest, AResumedRunThatWasNeverTrackedBegins) {
  put_demo("lerobot");
  capture();
  const std::string id = track(resumed("unknown"), 70);
  EXPECT_THAT(log(),
              HasSubstr("there is no run 'unknown' to go on with in lerobot: a new one begins"));
  EXPECT_EQ(id.size(), 32U);
  EXPECT_NE(id, kDemoId);
}

TEST_F(TrackioWriterTest, ARememberedRunWithoutRowsIsNotTakenForAnotherFoldersRunOfTheName) {
  { const TrackioWriter killed_before_its_first_row = writer(plan("run", "a/run")); }
  const std::string other = track(plan("run", "b/run"), 1);
  const std::string remembered = read_json_file(fs::path(out("a/run")) / "trackio.json")["run_id"];
  EXPECT_EQ(track(resumed("run", "a/run"), 2), remembered);
  EXPECT_NE(remembered, other);
}

TEST_F(TrackioWriterTest, ARememberedRunWithoutRowsIsTheOneThatWasStartedForItsFolder) {
  const std::string id = track(plan("run", "a/run"), 1);
  write_file_atomic(fs::path(out("a/run")) / "trackio.json",
                    R"({"project": "lerobot", "run_id": "gone", "run_name": "run"})");
  EXPECT_EQ(track(resumed("run", "a/run"), 2), id);
}

TEST_F(TrackioWriterTest, AnotherProjectOrNameIsAnotherRun) {
  const std::string id = track(plan("run"), 1);
  TrackingPlan elsewhere = resumed("run");
  elsewhere.place.project = "other";
  EXPECT_NE(track(elsewhere, 2), id);
  TrackingPlan renamed = resumed("chosen");
  renamed.chosen_name = true;
  EXPECT_NE(track(renamed, 3), id);
}

TEST_F(TrackioWriterTest, ADamagedMemoryIsSaidAndTheNameDecides) {
  const std::string id = track(plan("run"), 1);
  for (const char* text : {"{", "[]", R"({"project": 1})", R"({"project": "lerobot"})"}) {
    write_file_atomic(fs::path(out()) / "trackio.json", text);
    capture();
    EXPECT_EQ(track(resumed("run"), 2), id);
    EXPECT_THAT(log(), AllOf(HasSubstr("trackio.json: "),
                             HasSubstr("; looking for the tracked run by its name")));
    query(database(), "DELETE FROM metrics WHERE step = 2");
  }
}

TEST_F(TrackioWriterTest, NamesComeFromTheFolder) {
  EXPECT_EQ(default_run_name("outputs/train/15-30-14_act", "act"), "15-30-14_act");
  EXPECT_EQ(default_run_name("outputs/run/", "act"), "run");
  EXPECT_EQ(default_run_name("outputs/run/.", "act"), "run");
  EXPECT_EQ(default_run_name(".", "act"), "act");
  EXPECT_EQ(default_run_name("..", "act"), "act");
  EXPECT_EQ(default_run_name("/", "act"), "act");
  EXPECT_EQ(default_run_name("a/caf\xe9", "act"), "caf\xef\xbf\xbd");
}

// --- When it can't write ------------------------------------------------------------------------

TEST_F(TrackioWriterTest, RowsWaitWhileTheLockIsHeldAndAreSaidToWaitOnce) {
  TrackioWriter one = writer(plan("run"));
  one.add(rows(1, 1));
  one.write();
  auto lock = std::make_unique<UniqueFd>(::open(place().lock_file().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock->get(), LOCK_EX), 0);
  capture();
  for (int step = 2; step <= 4; ++step) {
    one.add(rows(step, step));
    one.write();
  }
  EXPECT_EQ(logged_steps(), "1");
  lock.reset();
  one.write();
  EXPECT_EQ(logged_steps(), "1,2,3,4");
  const std::string text = log();
  EXPECT_EQ(count(text, "WARN"), 1) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("has held the lock for more than 0.1 s. Training goes on, 1 "
                                    "row(s) wait"),
                          HasSubstr("the rows that waited are in " + database().string())));
}

TEST_F(TrackioWriterTest, AtTheEndALockThatStaysHeldCostsNoRows) {
  TrackioWriter one = writer(plan("run"));
  one.add(rows(1, 1));
  one.write();
  const UniqueFd lock(::open(place().lock_file().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  one.add(rows(2, 3));
  one.finish();
  EXPECT_EQ(logged_steps(), "1,2,3");
}

TEST_F(TrackioWriterTest, WaitingForTheLockEndsWhenTheRunDoes) {
  writer(plan("run")).finish();
  fs::create_directories(trackio());
  const UniqueFd lock(::open(place().lock_file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  TrackioWriter one(plan("run"), {.lock_wait = std::chrono::hours(1)}, [] { return true; });
  one.add(rows(1, 1));
  capture();
  one.write();  // returns
  EXPECT_THAT(log(), IsEmpty());
}

TEST_F(TrackioWriterTest, ADatabaseThatIsLockedToTheEndLosesRowsAndSaysSo) {
  TrackioWriter one = writer(plan("run"));
  one.add(rows(1, 1));
  one.write();
  const Connection other(database());
  other.run("BEGIN IMMEDIATE");
  one.add(rows(2, 3));
  capture();
  one.finish();
  EXPECT_THAT(log(),
              AllOf(HasSubstr("trackio: 2 row(s) of the run are lost, which metrics.jsonl has: " +
                              database().string() + ": another process keeps the database locked"),
                    HasSubstr("trackio: 1 row(s) of run 'run' are in " + database().string())));
}

TEST_F(TrackioWriterTest, RowsWaitForADatabaseThatIsMended) {
  fs::create_directories(trackio());
  write_file_atomic(database(), std::string(5000, 'x'));
  TrackioWriter one = writer(plan("run"));
  capture();
  one.add(rows(1, 1));
  one.write();
  one.add(rows(2, 2));
  one.write();
  fs::remove(database());
  one.finish();
  EXPECT_EQ(count(log(), "WARN"), 1);
  EXPECT_EQ(logged_steps(), "1,2");
}

TEST_F(TrackioWriterTest, ARemovedProjectIsMadeAnewWithTheConfigurationOfTheRun) {
  TrackioWriter one = writer(plan("run"));
  one.add(rows(1, 1));
  one.write();
  for (const char* ending : {"", "-wal", "-shm"}) fs::remove(database() += ending);
  one.add(rows(2, 2));
  one.finish();
  EXPECT_EQ(logged_steps(), "2");
  EXPECT_EQ(value(database(), "SELECT count(*) FROM configs"), "1");
}

TEST_F(TrackioWriterTest, OfTooManyWaitingRowsTheOldestAreGivenUp) {
  fs::create_directories(trackio());
  write_file_atomic(database(), std::string(5000, 'x'));
  TrackingLimits few = limits();
  few.most_waiting = 3;
  TrackioWriter one = writer(plan("run"), few);
  one.add(rows(1, 2));
  one.write();
  one.add(rows(3, 5));
  fs::remove(database());
  capture();
  one.finish();
  EXPECT_EQ(logged_steps(), "3,4,5");
  EXPECT_THAT(log(), HasSubstr("2 row(s) of the run are lost, which metrics.jsonl has: " +
                               database().string() + ": the file is damaged"));
}

TEST_F(TrackioWriterTest, FailingAttemptsBecomeRare) {
  fs::create_directories(trackio());
  write_file_atomic(database(), std::string(5000, 'x'));
  TrackioWriter one =
      writer(plan("run"), {.write_interval = std::chrono::hours(1), .lock_wait = kShort});
  one.add(rows(1, 1));
  one.write();
  fs::remove(database());
  one.write();  // too early
  EXPECT_FALSE(fs::exists(database()));
  one.finish();
  EXPECT_EQ(logged_steps(), "1");
}

TEST_F(TrackioWriterTest, ManyRowsAreWrittenInPieces) {
  TrackioWriter one = writer(plan("run"));
  one.add(rows(1, 1201));
  one.finish();
  EXPECT_EQ(value(database(), "SELECT count(DISTINCT step) FROM metrics"), "1201");
}

TEST_F(TrackioWriterTest, ANewRunThatLogsNothingSaysSoAndLeavesNothing) {
  capture();
  TrackioWriter one = writer(plan("run"));
  one.write();
  one.finish();
  EXPECT_THAT(log(), HasSubstr("trackio: nothing was logged (see --log_freq)"));
  EXPECT_FALSE(fs::exists(trackio()));
}

TEST_F(TrackioWriterTest, AResumedRunIsLookedUpBeforeItsFirstRow) {
  put_demo("lerobot");
  TrackioWriter one = writer(resumed(kDemoRun));
  capture();
  one.write();
  EXPECT_THAT(log(),
              HasSubstr(fmt::format("trackio: going on with run '{}' ({})", kDemoRun, kDemoId)));
}

TEST_F(TrackioWriterTest, AFullDiskMakesRowsWaitUntilThereIsSpace) {
  fs::create_directories(trackio());
  if (::mount("tmpfs", trackio().c_str(), "tmpfs", 0, "size=400k") != 0)
    GTEST_SKIP() << "mounting needs root";
  TrackioWriter one = writer(plan("run"));
  one.add(rows(1, 1));
  one.write();
  capture();
  one.add(rows(2, 3000));
  one.write();
  const std::string text = log();
  const std::string before = value(database(), "SELECT count(*) FROM metrics");
  EXPECT_EQ(::mount("", trackio().c_str(), "", MS_REMOUNT, "size=20m"), 0);
  one.finish();
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "3000");
  EXPECT_NE(before, "3000");
  EXPECT_EQ(value(database(), "PRAGMA integrity_check"), "ok");
  EXPECT_EQ(count(text, "WARN"), 1) << text;
  EXPECT_THAT(text, HasSubstr("no space left for the database"));
  ::umount2(trackio().c_str(), MNT_DETACH);
}

// --- Folders that several machines share --------------------------------------------------------

class TrackioInboxTest : public TrackioWriterTest {
 protected:
  TrackingPlan shared(TrackingPlan plan) const {
    plan.place.storage = TrackioPlace::Storage::kInbox;
    return plan;
  }
  /// One JSON object a line of every file, in the order of their names.
  std::vector<Json> lines() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(place().inbox()))
      if (entry.is_regular_file()) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::vector<Json> all;
    for (const fs::path& file : files) {
      EXPECT_EQ(file.extension(), ".jsonl");
      std::istringstream text(read_text_file(file));
      for (std::string line; std::getline(text, line);) all.push_back(Json::parse(line));
    }
    return all;
  }
};

TEST_F(TrackioInboxTest, EveryBatchIsAFileOfTrackiosLines) {
  TrackingPlan plan = shared(this->plan("a \"run\""));
  plan.project = "le.robot";
  TrackioWriter one = writer(plan);
  const std::vector<TrackedRow> first = {row(1, R"({"train/loss":0.5})"), row(2)};
  one.add(first);
  one.write();
  one.add(rows(3, 3));
  one.finish();
  const auto found = lines();
  ASSERT_EQ(found.size(), 3U);
  const std::string id = found[0]["run_id"];
  EXPECT_EQ(found[0].dump(),
            fmt::format(R"({{"v":1,"kind":"metric","project":"le.robot","run":"a \"run\"",)"
                        R"("run_id":"{}","metrics":{{"train/loss":0.5}},"step":1,"timestamp":"{}",)"
                        R"("config":{},"log_id":"{}"}})",
                        id, first[0].timestamp, plan.config.json, first[0].log_id));
  EXPECT_TRUE(found[1]["config"].is_null());
  EXPECT_TRUE(found[2]["config"].is_null());
  EXPECT_EQ(found[2]["run_id"], id);
  EXPECT_FALSE(fs::exists(database()));
  std::vector<std::string> names;
  for (const auto& writer : fs::directory_iterator(place().inbox())) {
    EXPECT_EQ(writer.path().filename().string().size(), 16U);
    for (const auto& file : fs::directory_iterator(writer))
      names.push_back(file.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, ElementsAre("00000000.jsonl", "00000001.jsonl"));
}

TEST_F(TrackioInboxTest, TheFolderThatADashboardHasEmptiedIsMadeAgain) {
  TrackioWriter one = writer(shared(plan("run")));
  one.add(rows(1, 1));
  one.write();
  fs::remove_all(place().inbox());
  one.add(rows(2, 2));
  one.finish();
  EXPECT_EQ(lines().size(), 1U);
}

TEST_F(TrackioInboxTest, AResumedRunKeepsItsIdBeforeAnyDashboardHasSeenIt) {
  TrackioWriter first = writer(shared(plan("run")));
  first.add(rows(1, 1));
  first.finish();
  TrackioWriter second = writer(shared(resumed("run")));
  second.add(rows(2, 2));
  second.finish();
  const auto found = lines();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["run_id"], found[1]["run_id"]);
  EXPECT_TRUE(found[1]["config"].is_object());  // a resume replaces it
}

TEST_F(TrackioInboxTest, AResumedRunIsFoundByNameInTheDatabaseOfTheDashboard) {
  put_demo("lerobot");
  TrackioWriter one = writer(shared(resumed(kDemoRun)));
  one.add(rows(70, 70));
  one.finish();
  EXPECT_EQ(lines()[0]["run_id"], kDemoId);
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "15");
}

TEST_F(TrackioInboxTest, AFolderThatCantBeWrittenMakesRowsWait) {
  write_file_atomic(trackio(), "in the way");
  TrackioWriter one = writer(shared(plan("run")));
  one.add(rows(1, 1));
  capture();
  one.write();
  EXPECT_THAT(log(), HasSubstr("cannot create the directory"));
  fs::remove(trackio());
  one.finish();
  EXPECT_EQ(lines().size(), 1U);
}

}  // namespace
}  // namespace lerobot::train
