// Whole trainings, and what is left of them in trackio's database.
#include "lerobot/train/tracking/trackio_run.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "lerobot/policy/registry.h"
#include "tests/train/several_processes.h"
#include "tests/train/trackio_fixture.h"

namespace lerobot::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Runs of lerobot-train that are tracked in a folder of their own.
class TrackedTraining : public SeveralProcesses {
 protected:
  void SetUp() override {
    SeveralProcesses::SetUp();
    for (const char* name : {"TRACKIO_STORAGE_MODE", "TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID"})
      ::unsetenv(name);
    ::setenv("TRACKIO_DIR", (folder_ / "trackio").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TRACKIO_DIR");
    SeveralProcesses::TearDown();
  }

  fs::path database() const { return folder_ / "trackio/lerobot.db"; }
  std::vector<std::string> tracked(const std::string& run,
                                   const std::vector<std::string>& more) const {
    return with(with(small_act(run, "toy_state"), {"--trackio.enable=true"}), more);
  }
  std::vector<std::string> resumed(const std::string& run, std::int64_t steps) const {
    return {"--resume=true", "--config_path=" + output(run).string(),
            fmt::format("--steps={}", steps)};
  }
  /// Rows with such a metric, of all runs.
  std::vector<Json> metrics(const std::string& name) const {
    std::vector<Json> all;
    for (const auto& row :
         query(database(), "SELECT CAST(metrics AS TEXT) FROM metrics ORDER BY id"))
      if (Json metrics = Json::parse(row[0]); metrics.contains(name)) all.push_back(metrics);
    return all;
  }
  /// Lines of metrics.jsonl with that number.
  std::vector<Json> logged(const std::string& run, const std::string& name) const {
    std::vector<Json> all;
    for (const Json& line : lines(output(run) / "metrics.jsonl"))
      if (line.contains(name)) all.push_back(line);
    return all;
  }
  Json run_config() const {
    return Json::parse(value(database(), "SELECT CAST(config AS TEXT) FROM configs"));
  }
};

TEST_F(TrackedTraining, LogsWhatTheRunLogsUnderLeRobotsNames) {
  const auto outcome = run_program(
      tracked("15-30-14_act", {"--steps=4", "--dataset.eval_split=0.3", "--eval_steps=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(
      outcome.text,
      AllOf(HasSubstr("Watch this run: TRACKIO_DIR='" + (folder_ / "trackio").string() +
                      "' trackio show --project lerobot (project lerobot, run "
                      "'15-30-14_act')"),
            HasSubstr("trackio: 6 row(s) of run '15-30-14_act' are in " + database().string())));
  EXPECT_THAT(query(database(), "SELECT DISTINCT run_name FROM metrics"),
              ElementsAre(ElementsAre("15-30-14_act")));
  EXPECT_THAT(query(database(), "SELECT step FROM metrics ORDER BY timestamp, id"),
              ElementsAre(Row{"1"}, Row{"2"}, Row{"2"}, Row{"3"}, Row{"4"}, Row{"4"}));

  // The same numbers as in metrics.jsonl, to the last digit.
  const auto training = logged("15-30-14_act", "loss");
  const auto held_out = logged("15-30-14_act", "eval_loss");
  const auto tracked_training = metrics("train/loss");
  ASSERT_EQ(tracked_training.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& row = tracked_training[i];
    EXPECT_EQ(row["train/steps"], i + 1);
    EXPECT_EQ(row["train/samples"], training[i]["samples"]);
    EXPECT_EQ(row["train/loss"], training[i]["loss"]);
    EXPECT_EQ(row["train/grad_norm"], training[i]["grdn"]);
    EXPECT_EQ(row["train/lr"], training[i]["lr"]);
    EXPECT_EQ(row["train/update_s"], training[i]["updt_s"]);
    EXPECT_EQ(row["train/dataloading_s"], training[i]["data_s"]);
    EXPECT_EQ(row["train/l1_loss"], training[i]["l1_loss"]);
    EXPECT_EQ(row.size(), tracked_training[0].size());
  }
  const auto tracked_held_out = metrics("eval/eval_loss");
  ASSERT_EQ(tracked_held_out.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(tracked_held_out[i], Json({{"eval/eval_loss", held_out[i]["eval_loss"]}}));

  const Json config = run_config();
  EXPECT_EQ(config["policy"]["dim_model"], 32);
  EXPECT_EQ(config["output_dir"], output("15-30-14_act").string());
  EXPECT_EQ(config["trackio"]["enable"], true);
  EXPECT_EQ(config["_Group"], "policy:act-seed:1000-dataset:facts/toy_state");
  EXPECT_TRUE(config["_Username"].is_null());
  EXPECT_TRUE(config.contains("_Created"));
}

TEST_F(TrackedTraining, WithoutTheOptionNothingIsWritten) {
  ASSERT_EQ(run_program(with(small_act("run", "toy_state"), {"--steps=1"})).code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "trackio"));
  EXPECT_FALSE(fs::exists(output("run") / "trackio.json"));
  const Json config =
      read_json_file(checkpoint("run", "000001") / "pretrained_model/train_config.json");
  EXPECT_FALSE(config.contains("trackio"));
}

TEST_F(TrackedTraining, AnInterruptedRunIsWrittenToItsLastLineAndGoesOn) {
  const auto stopped =
      run_program(tracked("run", {"--steps=100000", "--save_freq=0"}), "step:3 ", SIGINT);
  ASSERT_EQ(stopped.code, 130) << stopped.text;
  const std::size_t steps = samples("run").size();
  EXPECT_EQ(metrics("train/loss").size(), steps);
  const std::string id = value(database(), "SELECT DISTINCT run_id FROM metrics");
  const auto outcome = run_program(resumed("run", static_cast<std::int64_t>(steps) + 2));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("trackio: going on with run 'run' (" + id + ")"));
  EXPECT_EQ(value(database(), "SELECT DISTINCT run_id FROM metrics"), id);
  EXPECT_EQ(value(database(), "SELECT count(DISTINCT step) FROM metrics"),
            std::to_string(steps + 2));
  EXPECT_EQ(run_config()["resume"], true);
  EXPECT_EQ(value(database(),
                  "SELECT count(*) FROM (SELECT DISTINCT run_id, run_name FROM "
                  "metrics)"),
            "1");
}

TEST_F(TrackedTraining, AKilledRunKeepsWhatWasCommitted) {
  const auto outcome = run_program(tracked("run", {"--steps=100000", "--save_freq=50"}),
                                   "after step 200\n", SIGKILL);
  ASSERT_EQ(outcome.code, -SIGKILL);
  EXPECT_GT(metrics("train/loss").size(), 0U);
  EXPECT_EQ(value(database(), "PRAGMA integrity_check"), "ok");
  const std::string id = value(database(), "SELECT DISTINCT run_id FROM metrics");
  ASSERT_EQ(run_program(resumed("run", static_cast<std::int64_t>(samples("run").size()) + 1)).code,
            0);
  EXPECT_EQ(value(database(), "SELECT DISTINCT run_id FROM metrics"), id);
}

TEST_F(TrackedTraining, ARunThatFailsIsWrittenToItsLastLine) {
  const fs::path checkpoints = output("run") / "checkpoints";
  const auto outcome = run_command(
      with({program("lerobot-train")}, tracked("run", {"--steps=100000", "--save_freq=100"})),
      "step:1 ", [&](pid_t) {
        fs::remove_all(checkpoints);
        write_file_atomic(checkpoints, "in the way");
      });
  ASSERT_EQ(outcome.code, 1) << outcome.text;
  EXPECT_EQ(metrics("train/loss").size(), logged("run", "loss").size());
}

TEST_F(TrackedTraining, OfSeveralProcessesTheFirstOneWrites) {
  const auto outcome = launch(2, tracked("run", {"--steps=3"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(query(database(), "SELECT step FROM metrics ORDER BY id"),
              ElementsAre(Row{"1"}, Row{"2"}, Row{"3"}));
  EXPECT_EQ(value(database(), "SELECT count(*) FROM configs"), "1");
}

TEST_F(TrackedTraining, ProjectAndNameAreTheUsers) {
  const auto outcome = run_program(tracked(
      "run", {"--steps=1", "--trackio.project=my.model", "--trackio.name=ACT, große Kiste"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(value(folder_ / "trackio/mymodel.db", "SELECT DISTINCT run_name FROM metrics"),
            "ACT, große Kiste");
}

TEST_F(TrackedTraining, SaysThatServersAndSpacesAreNotReached) {
  ::setenv("TRACKIO_SPACE_ID", "me/space", 1);
  ::setenv("TRACKIO_SERVER_URL", "http://127.0.0.1:1?write_token=secret", 1);
  const auto outcome = run_program(tracked("run", {"--steps=1"}));
  ::unsetenv("TRACKIO_SPACE_ID");
  ::unsetenv("TRACKIO_SERVER_URL");
  ASSERT_EQ(outcome.code, 0);
  for (const char* name : {"TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"})
    EXPECT_THAT(outcome.text, HasSubstr(std::string(name) + " has no effect: runs are tracked on "
                                                            "this machine only"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("secret")));
  EXPECT_EQ(metrics("train/loss").size(), 1U);
}

TEST_F(TrackedTraining, ABrokenDatabaseDoesNotStopTheTraining) {
  fs::create_directories(folder_ / "trackio");
  write_file_atomic(database(), std::string(5000, 'x'));
  const auto outcome = run_program(tracked("run", {"--steps=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("trackio: 2 row(s) of the run are lost, which "
                                            "metrics.jsonl has: " +
                                            database().string() + ": the file is damaged"),
                                  HasSubstr("End of training")));
}

class TrackioRunTest : public TrackioTest {
 protected:
  config::TrainConfig config(bool resume = false) const {
    config::TrainConfig config;
    config.policy = config::find_policy_type(policy::policy_types(), "act")->make();
    config.dataset.repo_id = "a/b";
    config.resume = resume;
    return config;
  }
};

TEST_F(TrackioRunTest, RowsAreThereSoonAndTheRestAtTheEnd) {
  {
    TrackioRun run(config(), Json::object(), folder_ / "out",
                   {.write_interval = std::chrono::milliseconds(1)});
    run.training_line({{"step", 1}, {"loss", 0.5}});
    const auto is_there = [&] {
      return fs::exists(database()) &&
             value(database(), "SELECT count(*) FROM sqlite_schema WHERE name = 'configs'") ==
                 "1" &&
             value(database(), "SELECT count(*) FROM metrics") == "1";
    };
    for (int i = 0; i < 1000 && !is_there(); ++i) ::usleep(10'000);
    EXPECT_TRUE(is_there());
    run.held_out_loss(1, std::numeric_limits<double>::quiet_NaN());
    run.training_line({{"step", 2}, {"loss", std::numeric_limits<double>::infinity()}});
  }
  EXPECT_THAT(query(database(), "SELECT step, CAST(metrics AS TEXT) FROM metrics ORDER BY id"),
              ElementsAre(Row{"1", R"({"train/steps":1,"train/loss":0.5})"},
                          Row{"1", R"({"eval/eval_loss":"NaN"})"},
                          Row{"2", R"({"train/steps":2,"train/loss":"Infinity"})"}));
}

TEST_F(TrackioRunTest, TheEndDoesNotWaitForTheNextWrite) {
  TrackioRun run(config(), Json::object(), folder_ / "out",
                 {.write_interval = std::chrono::hours(1)});
  run.training_line({{"step", 1}, {"loss", 0.5}});
  run.finish();
  run.finish();
  EXPECT_EQ(value(database(), "SELECT count(*) FROM metrics"), "1");
}

}  // namespace
}  // namespace lerobot::train
