#include "lerobot/optim/ema.h"

#include <string>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/serialization/safetensors.h"
#include "tests/support/error_of.h"

namespace lerobot::optim {
namespace {

using serialization::SafetensorsFile;
using ::testing::HasSubstr;

const std::vector<std::string> kNames{"a.weight", "a.bias", "late.weight", "never.weight",
                                      "b.weight"};

nn::NamedTensors one_parameter() { return {{"w", at::ones({3}).set_requires_grad(true)}}; }

/// The options of LeRobot that lead to these arguments of diffusers' EMAModel.
config::EmaConfig config_from(const Json& arguments) {
  config::EmaConfig config;
  config.max_decay = arguments["decay"].get<double>();
  config.min_decay = arguments.value("min_decay", 0.0);
  config.power = arguments["power"].get<double>();
  config.inv_gamma = arguments.value("inv_gamma", 1.0);
  config.update_after_step = arguments.value("update_after_step", std::int64_t{0});
  return config;
}

TEST(Ema, AveragesAndDecaysAreThoseOfDiffusers) {
  const std::string data = LEROBOT_TEST_DATA "/optim/";
  const SafetensorsFile file(data + "ema.safetensors");
  const SafetensorsFile initial(data + "optimizers.safetensors");
  const Json cases = read_json_file(data + "ema.json");
  ASSERT_EQ(cases.size(), 3u);
  for (const auto& [label, expected] : cases.items()) {
    SCOPED_TRACE(label);
    nn::NamedTensors parameters;
    for (const std::string& name : kNames)
      parameters.emplace_back(
          name, initial.tensor("initial/" + name).set_requires_grad(name != "never.weight"));
    ExponentialMovingAverage average(config_from(expected["arguments"]), parameters);
    for (int step = 0; step < 6; ++step) {
      const c10::NoGradGuard no_grad;
      for (const auto& [name, parameter] : parameters)
        parameter.add_(file.tensor(fmt::format("change/{}/{}", step, name)));
      average.update();
      EXPECT_DOUBLE_EQ(average.decay_at(step + 1),
                       expected["decay"][static_cast<std::size_t>(step)].get<double>());
    }
    for (const auto& [name, shadow] : average.shadow())
      EXPECT_TRUE(at::equal(shadow, file.tensor(label + "/shadow/" + name))) << name;
    const Json& state = expected["state"];
    EXPECT_EQ(average.state().decay, state["decay"].get<double>());
    EXPECT_EQ(average.state().min_decay, state["min_decay"].get<double>());
    EXPECT_EQ(average.state().optimization_step, state["optimization_step"].get<std::int64_t>());
    EXPECT_EQ(average.state().update_after_step, state["update_after_step"].get<std::int64_t>());
    EXPECT_EQ(average.state().use_ema_warmup, state["use_ema_warmup"].get<bool>());
    EXPECT_EQ(average.state().inv_gamma, state["inv_gamma"].get<double>());
    EXPECT_EQ(average.state().power, state["power"].get<double>());
  }
}

TEST(Ema, DefaultDecaysAreThoseOfALeRobotRun) {
  const ExponentialMovingAverage average({}, one_parameter());
  EXPECT_EQ(average.decay_at(1), 0.0);
  EXPECT_NEAR(average.decay_at(2), 0.4053964, 1e-7);
  EXPECT_NEAR(average.decay_at(3), 0.5613087, 1e-7);
  EXPECT_NEAR(average.decay_at(20), 0.8942629, 1e-7);
  EXPECT_EQ(average.decay_at(std::int64_t{1} << 40), 0.9999);
}

TEST(Ema, AConstantDecayStillBeginsWithACopy) {
  config::EmaConfig config;
  config.decay = 0.7;
  const ExponentialMovingAverage average(config, one_parameter());
  EXPECT_EQ(average.decay_at(1), 0.0);
  EXPECT_EQ(average.decay_at(2), 0.7);
  EXPECT_EQ(average.decay_at(1000), 0.7);
}

TEST(Ema, EveryMemoryOrderAndTypeGivesTheSameAverage) {
  const at::Tensor start = at::randn({2, 3, 40, 500});
  nn::NamedTensors parameters{
      {"plain", start.clone()},
      {"last", start.contiguous(at::MemoryFormat::ChannelsLast).clone()},
      {"holes", at::zeros({2, 3, 40, 1000}).slice(3, 0, 1000, 2).copy_(start)},
      {"wide", start.to(at::kDouble)}};
  for (auto& [name, parameter] : parameters) parameter.set_requires_grad(true);
  ExponentialMovingAverage average({}, parameters);
  for (int step = 0; step < 3; ++step) {
    const c10::NoGradGuard no_grad;
    const at::Tensor change = at::randn(start.sizes());
    for (auto& [name, parameter] : parameters) parameter.add_(change);
    average.update();
  }
  const auto shadow = average.shadow();
  EXPECT_TRUE(at::equal(shadow[1].second, shadow[0].second));
  EXPECT_TRUE(at::equal(shadow[2].second, shadow[0].second));
  EXPECT_TRUE(at::allclose(shadow[3].second.to(at::kFloat), shadow[0].second, 1e-5, 1e-6));
}

TEST(Ema, ARestoredAverageContinuesExactly) {
  const auto straight = one_parameter(), resumed = one_parameter();
  ExponentialMovingAverage a({}, straight), b({}, resumed);
  const auto advance = [](ExponentialMovingAverage& average, const nn::NamedTensors& parameters) {
    const c10::NoGradGuard no_grad;
    parameters[0].second.mul_(1.25);
    average.update();
  };
  for (int i = 0; i < 4; ++i) advance(a, straight);
  {
    const c10::NoGradGuard no_grad;
    resumed[0].second.copy_(straight[0].second);
  }
  b.load_state(a.state());
  EXPECT_EQ(b.updates(), 4);
  for (int i = 0; i < 4; ++i) {
    advance(a, straight);
    advance(b, resumed);
  }
  EXPECT_TRUE(at::equal(a.shadow()[0].second, b.shadow()[0].second));
  EXPECT_FALSE(a.shadow()[0].second.is_same(b.shadow()[0].second));
}

TEST(Ema, StatesThatDoNotFitAreRefusedAndChangeNothing) {
  ExponentialMovingAverage average({}, one_parameter());
  const auto refuse = [&](auto change) {
    EmaState state = average.state();
    change(state);
    return error_of([&] { average.load_state(state); });
  };
  EXPECT_THAT(refuse([](EmaState& s) { s.shadow_params.clear(); }),
              HasSubstr("1 tensors, found 0"));
  EXPECT_THAT(refuse([](EmaState& s) { s.shadow_params[0] = at::ones({2}); }),
              HasSubstr("shape [3] of w, found [2]"));
  EXPECT_THAT(refuse([](EmaState& s) { s.decay = 1.5; }), HasSubstr("found 1.5"));
  EXPECT_THAT(refuse([](EmaState& s) { s.optimization_step = -1; }), HasSubstr("negative"));
  EXPECT_THAT(refuse([](EmaState& s) { s.inv_gamma = 0; }), HasSubstr("inv_gamma"));
  EXPECT_EQ(average.updates(), 0);
}

TEST(Ema, NumbersOutOfRangeAreUsageErrors) {
  const auto refuse = [](auto change) {
    config::EmaConfig config;
    change(config);
    try {
      ExponentialMovingAverage(config, one_parameter());
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refuse([](auto& c) { c.decay = 1.1; }), HasSubstr("ema.decay"));
  EXPECT_THAT(refuse([](auto& c) { c.max_decay = -0.1; }), HasSubstr("ema.max_decay"));
  EXPECT_THAT(refuse([](auto& c) { c.min_decay = 0.99999; }), HasSubstr("ema.min_decay"));
  EXPECT_THAT(refuse([](auto& c) { c.inv_gamma = 0; }), HasSubstr("ema.inv_gamma"));
  EXPECT_THAT(refuse([](auto& c) { c.power = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("ema.power"));
  EXPECT_THAT(refuse([](auto& c) { c.update_after_step = -1; }),
              HasSubstr("ema.update_after_step"));
}

}  // namespace
}  // namespace lerobot::optim
