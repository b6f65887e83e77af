#include "lerobot/optim/scheduler.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "tests/support/error_of.h"

namespace lerobot::optim {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCheckpoints = LEROBOT_TEST_DATA "/checkpoints/";

std::unique_ptr<Optimizer> two_groups() {
  config::AdamWConfig config;
  config.lr = 1e-3;
  std::vector<Group> groups(2);
  groups[1].lr = 3e-5;
  return make_optimizer(config, groups);
}

config::DiffuserSchedulerConfig diffuser(std::string name, std::optional<std::int64_t> warmup) {
  config::DiffuserSchedulerConfig config;
  config.name = std::move(name);
  config.num_warmup_steps = warmup;
  return config;
}

config::SchedulerConfig config_from(const Json& json) {
  const auto steps = [&](const char* key) { return json[key].get<std::int64_t>(); };
  const std::string type = json["type"].get<std::string>();
  if (type == "constant_with_warmup")
    return config::ConstantWithWarmupConfig{steps("num_warmup_steps")};
  if (type == "cosine_annealing_with_warmup")
    return config::CosineAnnealingWithWarmupConfig{steps("num_warmup_steps")};
  if (type == "cosine_decay_with_warmup")
    return config::CosineDecayWithWarmupConfig{steps("num_warmup_steps"), steps("num_decay_steps"),
                                               json["peak_lr"].get<double>(),
                                               json["decay_lr"].get<double>()};
  if (type == "vqbet")
    return config::VqbetSchedulerConfig{steps("num_warmup_steps"),
                                        steps("num_vqvae_training_steps"),
                                        json["num_cycles"].get<double>()};
  return diffuser(json["name"].get<std::string>(), json["num_warmup_steps"].is_null()
                                                       ? std::nullopt
                                                       : std::optional(steps("num_warmup_steps")));
}

TEST(Scheduler, RatesAndStatesAreThoseOfLeRobotAndDiffusersToTheBit) {
  const Json cases = read_json_file(LEROBOT_TEST_DATA "/optim/schedules.json");
  ASSERT_EQ(cases.size(), 25u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c["config"].dump());
    const auto optimizer = two_groups();
    Scheduler scheduler(config_from(c["config"]), *optimizer, c["steps"].get<std::int64_t>());
    for (std::size_t t = 0; t < c["lr"].size(); ++t) {
      for (std::size_t g = 0; g < 2; ++g)
        EXPECT_EQ(optimizer->groups()[g].lr, c["lr"][t][g].get<double>()) << "step " << t;
      if (t == 7) {
        EXPECT_EQ(to_python_json(scheduler.state(), 4), to_python_json(c["state_at_7"], 4));
        Json groups = optimizer->param_groups();
        for (Json& group : groups) group.erase("params");
        EXPECT_EQ(to_python_json(groups, 4), to_python_json(c["groups_at_7"], 4));
      }
      scheduler.step();
    }
  }
}

TEST(Scheduler, DiffusionPolicysRatesAreThoseOfAnEntireRun) {
  const Json oracle = read_json_file(LEROBOT_TEST_DATA "/optim/diffusion_rates.json");
  ASSERT_FALSE(oracle.empty());
  for (const auto& [label, rates] : oracle.items()) {
    SCOPED_TRACE(label);
    // "<name>/warmup<w>/steps<n>"
    const auto first = label.find("/warmup"), second = label.find("/steps");
    const std::string warmup = label.substr(first + 7, second - first - 7);
    const auto config =
        diffuser(label.substr(0, first),
                 warmup == "None" ? std::nullopt : std::optional<std::int64_t>(std::stoll(warmup)));
    const Schedule schedule = make_schedule(config, std::stoll(label.substr(second + 6)), 1e-3);
    for (const Json& pair : rates)
      EXPECT_EQ(1e-3 * schedule(pair[0].get<std::int64_t>()), pair[1].get<double>()) << pair.dump();
  }
}

TEST(Scheduler, ALeRobotRunContinuesFromItsCheckpoint) {
  config::AdamWConfig adamw;
  adamw.lr = 1e-3;
  const auto optimizer = make_optimizer(adamw, {{}});
  const config::CosineDecayWithWarmupConfig config{2, 100, 1e-3, 1e-4};
  Scheduler scheduler(config, *optimizer, 6);
  const Json third = read_json_file(std::string(kCheckpoints) +
                                    "state_sched/000003/training_state/scheduler_state.json");
  const Json sixth = read_json_file(std::string(kCheckpoints) +
                                    "state_sched/000006/training_state/scheduler_state.json");
  scheduler.load_state(third);
  EXPECT_EQ(scheduler.last_epoch(), 3);
  EXPECT_EQ(optimizer->groups()[0].lr, third["_last_lr"][0].get<double>());
  EXPECT_EQ(to_python_json(scheduler.state(), 4), to_python_json(third, 4));
  for (int i = 0; i < 3; ++i) scheduler.step();
  EXPECT_EQ(to_python_json(scheduler.state(), 4), to_python_json(sixth, 4));
}

TEST(Scheduler, ARestoredScheduleContinuesExactly) {
  const auto config = diffuser("cosine", 5);
  const auto straight = two_groups(), resumed = two_groups();
  Scheduler a(config, *straight, 30);
  for (int i = 0; i < 11; ++i) a.step();
  Scheduler b(config, *resumed, 30);
  b.load_state(a.state());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(straight->groups()[1].lr, resumed->groups()[1].lr);
    a.step();
    b.step();
  }
}

TEST(Scheduler, StatesThatDoNotFitAreRefusedAndChangeNothing) {
  const auto optimizer = two_groups();
  Scheduler scheduler(config::ConstantWithWarmupConfig{4}, *optimizer, 10);
  scheduler.step();
  const auto refuse = [&](const std::function<void(Json&)>& change) {
    Json state = scheduler.state();
    change(state);
    return error_of([&] { scheduler.load_state(state); });
  };
  EXPECT_THAT(refuse([](Json& s) { s = 3; }), HasSubstr("object"));
  EXPECT_THAT(refuse([](Json& s) { s.erase("base_lrs"); }), HasSubstr("\"base_lrs\" is missing"));
  EXPECT_THAT(refuse([](Json& s) { s["gamma"] = 1; }), HasSubstr("unknown key \"gamma\""));
  EXPECT_THAT(refuse([](Json& s) { s["base_lrs"].push_back(1.0); }), HasSubstr("2 numbers"));
  EXPECT_THAT(refuse([](Json& s) { s["_last_lr"][0] = "x"; }), HasSubstr("must hold numbers"));
  EXPECT_THAT(refuse([](Json& s) { s["last_epoch"] = -1; }), HasSubstr("\"last_epoch\""));
  EXPECT_THAT(refuse([](Json& s) { s["last_epoch"] = 2.5; }), HasSubstr("\"last_epoch\""));
  EXPECT_THAT(refuse([](Json& s) { s["_step_count"] = 9; }), HasSubstr("last_epoch + 1 = 2"));
  EXPECT_EQ(scheduler.last_epoch(), 1);
  EXPECT_EQ(optimizer->groups()[0].lr, 1e-3 / 4);
}

TEST(Scheduler, NumbersWithoutAScheduleAreUsageErrors) {
  const auto refuse = [](const config::SchedulerConfig& config, double lr = 1e-3) {
    try {
      make_schedule(config, 10, lr);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refuse(config::ConstantWithWarmupConfig{-1}),
              HasSubstr("scheduler.num_warmup_steps must be at least 0, found -1"));
  EXPECT_THAT(refuse(config::CosineAnnealingWithWarmupConfig{-1}), HasSubstr("num_warmup_steps"));
  EXPECT_THAT(refuse(config::CosineDecayWithWarmupConfig{1, 0, 1e-3, 1e-4}),
              HasSubstr("scheduler.num_decay_steps"));
  EXPECT_THAT(refuse(config::CosineDecayWithWarmupConfig{-1, 5, 1e-3, 1e-4}),
              HasSubstr("scheduler.num_warmup_steps"));
  EXPECT_THAT(refuse(config::CosineDecayWithWarmupConfig{1, 5, 0.0, 1e-4}),
              HasSubstr("scheduler.peak_lr"));
  EXPECT_THAT(refuse(config::CosineDecayWithWarmupConfig{1, 5, 1e-3, -1.0}),
              HasSubstr("scheduler.decay_lr"));
  EXPECT_THAT(refuse(diffuser("bogus", 1)), HasSubstr("found \"bogus\""));
  EXPECT_THAT(refuse(diffuser("piecewise_constant", 1)), HasSubstr("step rules"));
  EXPECT_THAT(refuse(diffuser("cosine", {})), HasSubstr("scheduler.num_warmup_steps must be set"));
  EXPECT_THAT(refuse(diffuser("linear", -2)), HasSubstr("found -2"));
  EXPECT_THAT(refuse(diffuser("polynomial", 1), 1e-8), HasSubstr("optimizer.lr"));
  EXPECT_THAT(refuse(config::VqbetSchedulerConfig{1, -1, 0.5}),
              HasSubstr("num_vqvae_training_steps"));
  EXPECT_THAT(refuse(config::VqbetSchedulerConfig{-1, 1, 0.5}), HasSubstr("num_warmup_steps"));
  EXPECT_EQ(refuse(diffuser("constant", {})), "no error");
}

}  // namespace
}  // namespace lerobot::optim
