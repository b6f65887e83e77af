#include "lerobot/train/tracking/trackio_rows.h"

#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "lerobot/policy/registry.h"

namespace lerobot::train {
namespace {

TEST(TrackioRows, TimestampsHaveOneLengthSoThatTheySortAsText) {
  using namespace std::chrono;
  const system_clock::time_point time = sys_days(year(2026) / 1 / 2) + 3h + 4min + 5s;
  EXPECT_EQ(tracking_timestamp(time), "2026-01-02T03:04:05.000000+00:00");
  EXPECT_EQ(tracking_timestamp(time + 61us), "2026-01-02T03:04:05.000061+00:00");
}

TEST(TrackioRows, IdsAreRandomUuidsWithoutDashes) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.insert(random_tracking_id());
  EXPECT_EQ(ids.size(), 100U);
  for (const std::string& id : ids) {
    EXPECT_EQ(id.size(), 32U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_EQ(id[12], '4');
    EXPECT_NE(std::string("89ab").find(id[16]), std::string::npos);
  }
}

TEST(TrackioRows, JsonIsCompactAndHasNoNumberThatReadersCantParse) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Json value = {{"train/loss", std::numeric_limits<double>::quiet_NaN()},
                      {"train/grad_norm", kInfinity},
                      {"low", -kInfinity},
                      {"lr", 1e-05},
                      {"big", 9223372036854775807},
                      {"name", "caf\xe9 \xc3\xa9"},
                      {"list", {1.5, kInfinity}}};
  EXPECT_EQ(tracked_json(value),
            R"({"train/loss":"NaN","train/grad_norm":"Infinity","low":"-Infinity","lr":1e-05,)"
            "\"big\":9223372036854775807,\"name\":\"caf\xef\xbf\xbd \xc3\xa9\","
            R"("list":[1.5,"Infinity"]})");
}

TEST(TrackioRows, TrainingLinesHaveLeRobotsNames) {
  const Json line = {{"step", 10},      {"samples", 80},     {"episodes", 0.6},
                     {"epochs", 0.003}, {"loss", 2.5},       {"grdn", 13.25},
                     {"lr", 1e-5},      {"data_s", 0.01},    {"prep_s", 0.02},
                     {"updt_s", 0.08},  {"step_s", 0.11},    {"samples_per_s", 70.0},
                     {"mem_gb", 1.5},   {"l1_loss", 0.35},   {"phases", {{"forward", 1}}},
                     {"ranks", {1, 2}}, {"nothing", nullptr}};
  EXPECT_EQ(tracked_training_line(line), Json({{"train/steps", 10},
                                               {"train/samples", 80},
                                               {"train/episodes", 0.6},
                                               {"train/epochs", 0.003},
                                               {"train/loss", 2.5},
                                               {"train/grad_norm", 13.25},
                                               {"train/lr", 1e-5},
                                               {"train/dataloading_s", 0.01},
                                               {"train/preprocessing_s", 0.02},
                                               {"train/update_s", 0.08},
                                               {"train/step_s", 0.11},
                                               {"train/samples_per_s", 70.0},
                                               {"train/gpu_mem_gb", 1.5},
                                               {"train/l1_loss", 0.35}}));
}

TEST(TrackioRows, TheGroupIsLeRobots) {
  config::TrainConfig config;
  config.dataset.repo_id = "lerobot/pusht";
  config.policy = config::find_policy_type(policy::policy_types(), "act")->make();
  const Json tracked = tracked_config(config, {{"steps", 60}}, "2026-01-02T03:04:05.000000+00:00");
  EXPECT_EQ(tracked, Json({{"steps", 60},
                           {"_Username", nullptr},
                           {"_Created", "2026-01-02T03:04:05.000000+00:00"},
                           {"_Group", "policy:act-seed:1000-dataset:lerobot/pusht"}}));
  config.seed.reset();
  EXPECT_EQ(tracked_config(config, {}, "")["_Group"], "policy:act-seed:None-dataset:lerobot/pusht");
}

}  // namespace
}  // namespace lerobot::train
