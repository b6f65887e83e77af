#include "lerobot/optim/optimizer.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "tests/support/error_of.h"

namespace lerobot::optim {
namespace {

using serialization::SafetensorsFile;
using ::testing::HasSubstr;

constexpr const char* kData = LEROBOT_TEST_DATA "/optim/";
constexpr const char* kCheckpoints = LEROBOT_TEST_DATA "/checkpoints/";

/// Names in the order of tests/interop/generate_optim.py; its first group ends before the fourth.
const std::vector<std::string> kNames{"a.weight", "a.bias", "late.weight", "never.weight",
                                      "b.weight"};
constexpr std::size_t kFirstGroup = 3;
constexpr int kSteps = 4;

at::Tensor parameter_of(const at::Tensor& value) { return value.clone().set_requires_grad(true); }

std::vector<Group> one_group(nn::NamedTensors parameters) {
  std::vector<Group> groups(1);
  groups[0].parameters = std::move(parameters);
  return groups;
}

config::OptimizerConfig config_from(const Json& json) {
  const auto adam = [&](auto config) -> config::OptimizerConfig {
    config.lr = json["lr"].get<double>();
    config.weight_decay = json["weight_decay"].get<double>();
    config.betas = json["betas"].get<std::vector<double>>();
    config.eps = json["eps"].get<double>();
    return config;
  };
  if (json["type"] == "adam") return adam(config::AdamConfig{});
  if (json["type"] == "adamw") return adam(config::AdamWConfig{});
  config::SgdConfig sgd;
  sgd.lr = json["lr"].get<double>();
  sgd.weight_decay = json["weight_decay"].get<double>();
  sgd.momentum = json["momentum"].get<double>();
  sgd.dampening = json["dampening"].get<double>();
  sgd.nesterov = json["nesterov"].get<bool>();
  return sgd;
}

double rate_of(const config::OptimizerConfig& config) {
  return std::visit([](const auto& c) { return c.lr; }, config);
}

/// The generator's parameters in its two groups.
std::vector<Group> initial_groups(const SafetensorsFile& file, double second_lr) {
  std::vector<Group> groups(2);
  for (std::size_t i = 0; i < kNames.size(); ++i)
    groups[i < kFirstGroup ? 0 : 1].parameters.emplace_back(
        kNames[i], parameter_of(file.tensor("initial/" + kNames[i])));
  groups[1].lr = second_lr;
  return groups;
}

void set_gradients(Optimizer& optimizer, const SafetensorsFile& file, int step) {
  optimizer.zero_grad();
  for (const Group& group : optimizer.groups())
    for (const auto& [name, parameter] : group.parameters) {
      const std::string key = fmt::format("gradient/{}/{}", step, name);
      if (file.contains(key)) parameter.mutable_grad() = file.tensor(key);
    }
}

/// Largest difference relative to the larger of the two, with the scale of the values as a floor.
void expect_close(const at::Tensor& ours, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(ours.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(at::allclose(ours, expected, 1e-6, 1e-8)) << what << "\n" << ours << expected;
}

TEST(Optimizer, StepsStatesAndGroupsAreThoseOfTorch) {
  const SafetensorsFile file(std::string(kData) + "optimizers.safetensors");
  const Json cases = read_json_file(std::string(kData) + "optimizers.json");
  ASSERT_EQ(cases.size(), 8u);
  for (const auto& [label, expected] : cases.items()) {
    SCOPED_TRACE(label);
    const config::OptimizerConfig config = config_from(expected["config"]);
    const auto optimizer = make_optimizer(config, initial_groups(file, rate_of(config) / 4));
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(*optimizer, file, step);
      optimizer->step();
      for (const Group& group : optimizer->groups())
        for (const auto& [name, parameter] : group.parameters)
          expect_close(parameter.detach(), file.tensor(fmt::format("{}/{}/{}", label, step, name)),
                       fmt::format("{} after step {}", name, step));
    }
    std::size_t entries = 0;
    for (const auto& [key, tensor] : optimizer->state()) {
      expect_close(tensor, file.tensor(label + "/" + key), key);
      ++entries;
    }
    std::size_t expected_entries = 0;
    for (const std::string& name : file.names())
      expected_entries += name.starts_with(label + "/state/");
    EXPECT_EQ(entries, expected_entries);
    EXPECT_EQ(to_python_json(optimizer->param_groups(), 4),
              to_python_json(expected["param_groups"], 4));
  }
}

// torch's unfused optimizer, operation by operation, in the same library on the same processor.
struct ReferenceAdam {
  config::AdamWConfig config;
  bool decoupled;
  at::Tensor parameter, exp_avg, exp_avg_sq;
  double steps = 0;

  void step(at::Tensor gradient) {
    const double lr = config.lr, beta1 = config.betas[0], beta2 = config.betas[1];
    ++steps;
    if (config.weight_decay != 0) {
      if (decoupled)
        parameter.mul_(1 - lr * config.weight_decay);
      else
        gradient = gradient.add(parameter, config.weight_decay);
    }
    exp_avg.lerp_(gradient, 1 - beta1);
    exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    const double correction1 = 1 - std::pow(beta1, steps), correction2 = 1 - std::pow(beta2, steps);
    const at::Tensor denominator =
        exp_avg_sq.sqrt().div(std::pow(correction2, 0.5)).add_(config.eps);
    parameter.addcdiv_(exp_avg, denominator, -(lr / correction1));
  }
};

TEST(Optimizer, AdamIsBitIdenticalToTorchsOperationsForAnySizeAndThreadCount) {
  const c10::NoGradGuard no_grad;
  for (const int threads : {1, 3}) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    for (const bool decoupled : {true, false})
      for (const double beta1 : {0.9, 0.5, 0.2})
        for (const double decay : {0.0, 0.03})
          for (const std::int64_t size : {1, 7, 8, 33, 16384, 16385, 50003}) {
            config::AdamWConfig settings;
            settings.lr = 3e-3;
            settings.betas = {beta1, 0.99};
            settings.weight_decay = decay;
            config::AdamConfig coupled;
            coupled.lr = settings.lr;
            coupled.betas = settings.betas;
            coupled.weight_decay = decay;
            const at::Tensor start = at::randn({size});
            const at::Tensor parameter = parameter_of(start);
            const auto optimizer = make_optimizer(
                decoupled ? config::OptimizerConfig(settings) : config::OptimizerConfig(coupled),
                one_group({{"p", parameter}}));
            ReferenceAdam reference{settings, decoupled, start.clone(), at::zeros({size}),
                                    at::zeros({size})};
            for (int step = 0; step < 3; ++step) {
              const at::Tensor gradient = at::randn({size}).mul_(0.01);
              parameter.mutable_grad() = gradient.clone();
              optimizer->step();
              reference.step(gradient);
            }
            EXPECT_TRUE(at::equal(parameter, reference.parameter)) << size;
            const auto state = optimizer->state();
            EXPECT_EQ(state[0].second.item<float>(), 3.0f);
            EXPECT_TRUE(at::equal(state[1].second, reference.exp_avg)) << size;
            EXPECT_TRUE(at::equal(state[2].second, reference.exp_avg_sq)) << size;
          }
    at::set_num_threads(before);
  }
}

TEST(Optimizer, SgdIsBitIdenticalToTorchsOperations) {
  const c10::NoGradGuard no_grad;
  for (const double momentum : {0.0, 0.9})
    for (const double decay : {0.0, 0.03})
      for (const bool nesterov : {false, true})
        for (const std::int64_t size : {5, 16385, 50003}) {
          if (nesterov && momentum == 0) continue;
          config::SgdConfig settings;
          settings.lr = 0.05;
          settings.momentum = momentum;
          settings.dampening = nesterov ? 0.0 : 0.3;
          settings.weight_decay = decay;
          settings.nesterov = nesterov;
          const at::Tensor start = at::randn({size});
          const at::Tensor parameter = parameter_of(start), expected = start.clone();
          at::Tensor buffer;
          const auto optimizer = make_optimizer(settings, one_group({{"p", parameter}}));
          for (int step = 0; step < 3; ++step) {
            at::Tensor gradient = at::randn({size});
            parameter.mutable_grad() = gradient.clone();
            optimizer->step();
            if (decay != 0) gradient = gradient.add(expected, decay);
            if (momentum != 0) {
              if (buffer.defined())
                buffer.mul_(momentum).add_(gradient, 1 - settings.dampening);
              else
                buffer = gradient.clone();
              gradient = nesterov ? gradient.add(buffer, momentum) : buffer;
            }
            expected.add_(gradient, -settings.lr);
          }
          EXPECT_TRUE(at::equal(parameter, expected)) << size;
          const auto state = optimizer->state();
          ASSERT_EQ(state.size(), momentum != 0 ? 1u : 0u);
          if (!state.empty()) {
            EXPECT_TRUE(at::equal(state[0].second, buffer));
          }
        }
}

TEST(Optimizer, OtherTypesAndMemoryOrdersFollowTheSameFormula) {
  const c10::NoGradGuard no_grad;
  for (const bool sgd : {false, true}) {
    config::SgdConfig sgd_settings;
    sgd_settings.momentum = 0.9;
    sgd_settings.weight_decay = 0.01;
    const config::OptimizerConfig settings = sgd ? config::OptimizerConfig(sgd_settings)
                                                 : config::OptimizerConfig(config::AdamWConfig{});
    const at::Tensor start = at::randn({2, 3, 4, 5}), gradient = at::randn({2, 3, 4, 5});
    const at::Tensor plain = parameter_of(start);
    const at::Tensor channels_last = parameter_of(start.contiguous(at::MemoryFormat::ChannelsLast));
    const at::Tensor with_holes =
        at::zeros({2, 3, 4, 10}).slice(3, 0, 10, 2).copy_(start).set_requires_grad(true);
    const at::Tensor wide = parameter_of(start.to(at::kDouble));
    const auto optimizer = make_optimizer(
        settings,
        one_group(
            {{"plain", plain}, {"last", channels_last}, {"holes", with_holes}, {"wide", wide}}));
    for (int step = 0; step < 3; ++step) {
      plain.mutable_grad() = gradient.clone();
      channels_last.mutable_grad() = gradient.clone();
      with_holes.mutable_grad() = gradient.clone();
      wide.mutable_grad() = gradient.to(at::kDouble);
      optimizer->step();
    }
    EXPECT_TRUE(at::equal(channels_last, plain));
    EXPECT_TRUE(at::equal(with_holes, plain));
    EXPECT_TRUE(at::allclose(wide.to(at::kFloat), plain, 1e-5, 1e-7));
  }
}

TEST(Optimizer, ParametersWithoutElementsAndWithoutGradientsAreLeftAlone) {
  const at::Tensor empty = parameter_of(at::empty({0, 3}));
  const at::Tensor idle = parameter_of(at::ones({2}));
  const auto optimizer =
      make_optimizer(config::AdamWConfig{}, one_group({{"empty", empty}, {"idle", idle}}));
  empty.mutable_grad() = at::empty({0, 3});
  optimizer->step();
  EXPECT_TRUE(at::equal(idle.detach(), at::ones({2})));
  EXPECT_EQ(optimizer->state().size(), 3u);
  optimizer->zero_grad();
  EXPECT_FALSE(empty.grad().defined());
}

TEST(Optimizer, UnsetGroupRatesAreTheConfigurations) {
  config::AdamWConfig settings;
  settings.lr = 0.25;
  std::vector<Group> groups(3);
  groups[1].lr = 0.0;
  groups[2].lr = 0.5;
  const auto optimizer = make_optimizer(settings, groups);
  EXPECT_EQ(optimizer->groups()[0].lr, 0.25);
  EXPECT_EQ(optimizer->groups()[1].lr, 0.0);
  EXPECT_EQ(optimizer->groups()[2].lr, 0.5);
  EXPECT_EQ(optimizer->default_lr(), 0.25);
}

/// An optimizer with parameters of the shapes that a checkpoint's optimizer had.
std::unique_ptr<Optimizer> optimizer_like(const SafetensorsFile& state, const Json& groups) {
  std::vector<Group> ours(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const Json& number : groups[g]["params"]) {
      const std::string key = fmt::format("state/{}/exp_avg", number.get<int>());
      ours[g].parameters.emplace_back(
          key, parameter_of(state.contains(key) ? at::zeros(state.shape(key)) : at::zeros({1})));
      if (groups[g].contains("initial_lr")) ours[g].initial_lr = 0.0;
    }
  return make_optimizer(config::AdamWConfig{}, ours);
}

TEST(Optimizer, LeRobotsCheckpointsLoadAndAreWrittenBackEqual) {
  for (const std::string name :
       {"state_single/000008", "state_single/000040", "state_sched/000003", "state_accum/000008"}) {
    SCOPED_TRACE(name);
    const std::string folder = kCheckpoints + name + "/training_state/";
    const SafetensorsFile file(folder + "optimizer_state.safetensors");
    const Json groups = read_json_file(folder + "optimizer_param_groups.json");
    const auto optimizer = optimizer_like(file, groups);
    optimizer->load_state(file.all());
    optimizer->load_param_groups(groups);
    EXPECT_EQ(to_python_json(optimizer->param_groups(), 4), to_python_json(groups, 4));
    const auto state = optimizer->state();
    EXPECT_EQ(state.size(), file.names().size());
    for (const auto& [key, tensor] : state) EXPECT_TRUE(at::equal(tensor, file.tensor(key))) << key;
  }
}

TEST(Optimizer, ARestoredOptimizerContinuesExactly) {
  const SafetensorsFile file(std::string(kData) + "optimizers.safetensors");
  const Json cases = read_json_file(std::string(kData) + "optimizers.json");
  for (const auto& [label, expected] : cases.items()) {
    SCOPED_TRACE(label);
    const config::OptimizerConfig config = config_from(expected["config"]);
    const auto straight = make_optimizer(config, initial_groups(file, 0.003));
    for (int step = 0; step < 2; ++step) {
      set_gradients(*straight, file, step);
      straight->step();
    }
    std::vector<Group> groups(2);
    for (std::size_t g = 0; g < 2; ++g)
      for (const auto& [name, parameter] : straight->groups()[g].parameters)
        groups[g].parameters.emplace_back(name, parameter_of(parameter.detach()));
    const auto resumed = make_optimizer(config, groups);
    resumed->load_state(straight->state());
    resumed->load_param_groups(straight->param_groups());
    for (int step = 2; step < kSteps; ++step)
      for (const auto& optimizer : {straight.get(), resumed.get()}) {
        set_gradients(*optimizer, file, step);
        optimizer->step();
      }
    for (std::size_t g = 0; g < 2; ++g)
      for (std::size_t i = 0; i < groups[g].parameters.size(); ++i)
        EXPECT_TRUE(at::equal(straight->groups()[g].parameters[i].second,
                              resumed->groups()[g].parameters[i].second));
  }
}

struct SmallAdam {
  at::Tensor parameter = parameter_of(at::ones({2, 3}));
  std::unique_ptr<Optimizer> optimizer =
      make_optimizer(config::AdamWConfig{}, one_group({{"w", parameter}}));
  std::string load(const serialization::NamedTensors& state) {
    return error_of([&] { optimizer->load_state(state); });
  }
  std::string load(const std::function<void(Json&)>& change) {
    Json groups = optimizer->param_groups();
    change(groups);
    return error_of([&] { optimizer->load_param_groups(groups); });
  }
};

TEST(Optimizer, StatesThatDoNotFitAreRefusedByKeyAndLeaveTheOptimizerAsItWas) {
  SmallAdam adam;
  const at::Tensor moment = at::ones({2, 3}), step = at::ones({});
  EXPECT_EQ(
      adam.load(
          {{"state/0/step", step}, {"state/0/exp_avg", moment}, {"state/0/exp_avg_sq", moment}}),
      "no error");
  EXPECT_THAT(adam.load({{"state/0/step", step}, {"state/0/exp_avg", moment}}),
              HasSubstr("\"state/0/exp_avg_sq\" is missing"));
  EXPECT_THAT(adam.load({{"state/1/step", step}}), HasSubstr("unknown key \"state/1/step\""));
  EXPECT_THAT(adam.load({{"state/x/step", step}}), HasSubstr("unknown key \"state/x/step\""));
  EXPECT_THAT(adam.load({{"step", step}}), HasSubstr("unknown key \"step\""));
  EXPECT_THAT(adam.load({{"state/0/", step}}), HasSubstr("unknown key \"state/0/\""));
  EXPECT_THAT(adam.load({{"state/0/momentum_buffer", moment}}), HasSubstr("another optimizer"));
  EXPECT_THAT(adam.load({{"state/0/step", step}, {"state/0/step", step}}), HasSubstr("twice"));
  EXPECT_THAT(adam.load({{"state/0/step", step},
                         {"state/0/exp_avg", at::ones({3, 2})},
                         {"state/0/exp_avg_sq", moment}}),
              HasSubstr("must have the shape [2, 3] of parameter w, found [3, 2]"));
  EXPECT_THAT(adam.load({{"state/0/step", at::ones({1})},
                         {"state/0/exp_avg", moment},
                         {"state/0/exp_avg_sq", moment}}),
              HasSubstr("\"state/0/step\" must have the shape []"));
  EXPECT_THAT(adam.load({{"state/0/step", step},
                         {"state/0/exp_avg", moment.to(at::kLong)},
                         {"state/0/exp_avg_sq", moment}}),
              HasSubstr("floating-point"));
  EXPECT_EQ(adam.optimizer->state().size(), 3u);
}

TEST(Optimizer, GroupsThatDoNotFitAreRefusedByKeyAndLeaveTheOptimizerAsItWas) {
  SmallAdam adam;
  EXPECT_EQ(adam.load([](Json& g) { g[0]["lr"] = 0.5; }), "no error");
  EXPECT_EQ(adam.optimizer->groups()[0].lr, 0.5);
  EXPECT_THAT(adam.load([](Json& g) { g = Json::object(); }), HasSubstr("must be a list"));
  EXPECT_THAT(adam.load([](Json& g) { g.push_back(g[0]); }), HasSubstr("1 groups, found 2"));
  EXPECT_THAT(adam.load([](Json& g) { g[0] = 3; }), HasSubstr("must be an object"));
  EXPECT_THAT(adam.load([](Json& g) { g[0].erase("eps"); }), HasSubstr("has no \"eps\""));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["momentum"] = 0.9; }),
              HasSubstr("unknown setting \"momentum\""));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["initial_lr"] = 0.9; }),
              HasSubstr("written with a scheduler"));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["params"].push_back(1); }),
              HasSubstr("1 parameters, found 2"));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["params"][0] = 7; }), HasSubstr("from 0 on"));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["lr"] = "fast"; }),
              HasSubstr("\"lr\" must be a number, found \"fast\""));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["betas"] = {0.9}; }), HasSubstr("two numbers"));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["amsgrad"] = true; }), HasSubstr("\"amsgrad\" is true"));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["maximize"] = 1; }), HasSubstr("true or false"));
  EXPECT_THAT(adam.load([](Json& g) { g[0]["decoupled_weight_decay"] = false; }),
              HasSubstr("\"decoupled_weight_decay\" is false"));
  EXPECT_EQ(adam.optimizer->groups()[0].lr, 0.5);

  adam.optimizer->groups()[0].initial_lr = 0.5;
  EXPECT_THAT(adam.load([](Json& g) { g[0].erase("initial_lr"); }),
              HasSubstr("written without a scheduler"));

  config::SgdConfig settings;
  settings.momentum = 0.9;
  const auto sgd = make_optimizer(settings, {{}});
  Json groups = sgd->param_groups();
  groups[0]["momentum"] = 0.0;
  EXPECT_THAT(error_of([&] { sgd->load_param_groups(groups); }),
              HasSubstr("\"momentum\" is 0, but this run's optimizer has 0.9"));
}

TEST(Optimizer, NumbersThatTorchRefusesAreUsageErrors) {
  const auto refuse = [](auto config, auto change) {
    change(config);
    try {
      make_optimizer(config, {{}});
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const config::AdamWConfig adamw;
  const config::SgdConfig sgd;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refuse(adamw, [](auto& c) { c.lr = -1; }), HasSubstr("optimizer.lr"));
  EXPECT_THAT(refuse(adamw, [&](auto& c) { c.lr = nan; }), HasSubstr("optimizer.lr"));
  EXPECT_THAT(refuse(adamw, [](auto& c) { c.betas = {0.9}; }), HasSubstr("optimizer.betas"));
  EXPECT_THAT(refuse(adamw, [](auto& c) { c.betas = {0.9, 1.0}; }), HasSubstr("optimizer.betas"));
  EXPECT_THAT(refuse(adamw, [](auto& c) { c.eps = -1; }), HasSubstr("optimizer.eps"));
  EXPECT_THAT(refuse(config::AdamConfig{}, [](auto& c) { c.weight_decay = -1; }),
              HasSubstr("optimizer.weight_decay"));
  EXPECT_THAT(refuse(config::AdamConfig{}, [](auto& c) { c.lr = -1; }), HasSubstr("optimizer.lr"));
  EXPECT_THAT(refuse(sgd, [](auto& c) { c.lr = -1; }), HasSubstr("optimizer.lr"));
  EXPECT_THAT(refuse(sgd, [](auto& c) { c.momentum = -1; }), HasSubstr("optimizer.momentum"));
  EXPECT_THAT(refuse(sgd, [](auto& c) { c.weight_decay = -1; }),
              HasSubstr("optimizer.weight_decay"));
  EXPECT_THAT(refuse(sgd, [](auto& c) { c.nesterov = true; }), HasSubstr("optimizer.nesterov"));
  std::vector<Group> groups(1);
  groups[0].lr = -0.5;
  EXPECT_THAT(error_of([&] { make_optimizer(adamw, groups); }), HasSubstr("-0.5"));
  const at::Tensor shared = parameter_of(at::ones({1}));
  EXPECT_THROW(make_optimizer(adamw, one_group({{"a", shared}, {"b", shared}})), InternalError);
}

TEST(ClipGradNorm, NormAndGradientsAreThoseOfTorch) {
  const SafetensorsFile file(std::string(kData) + "optimizers.safetensors");
  const auto run = [&](const std::string& label, double max_norm) {
    nn::NamedTensors parameters;
    for (const std::string& name : kNames) {
      parameters.emplace_back(name, parameter_of(file.tensor("initial/" + name)));
      if (file.contains("gradient/3/" + name))
        parameters.back().second.mutable_grad() = file.tensor("gradient/3/" + name);
    }
    EXPECT_TRUE(
        at::allclose(clip_grad_norm(parameters, max_norm), file.tensor(label + "/norm"), 1e-6, 0));
    for (const auto& [name, parameter] : parameters) {
      const std::string key = label + "/gradient/" + name;
      EXPECT_EQ(parameter.grad().defined(), file.contains(key));
      if (file.contains(key)) expect_close(parameter.grad(), file.tensor(key), key);
    }
  };
  run("clipped", 0.5);
  run("whole", 50.0);
}

TEST(ClipGradNorm, WithoutALimitOnlyMeasures) {
  const at::Tensor parameter = parameter_of(at::ones({4}));
  parameter.mutable_grad() = at::ones({4}).mul_(5);
  EXPECT_EQ(clip_grad_norm({{"p", parameter}}, 0).item<float>(), 10.0f);
  EXPECT_TRUE(at::equal(parameter.grad(), at::ones({4}).mul_(5)));
  EXPECT_EQ(clip_grad_norm({{"p", parameter_of(at::ones({4}))}}, 1).item<float>(), 0.0f);
  EXPECT_EQ(clip_grad_norm({}, 1).item<float>(), 0.0f);
}

TEST(ClipGradNorm, ANormThatIsNotFiniteIsReturnedAsSuch) {
  const at::Tensor parameter = parameter_of(at::ones({2}));
  parameter.mutable_grad() = at::ones({2}).mul_(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isinf(clip_grad_norm({{"p", parameter}}, 1).item<float>()));
  EXPECT_TRUE(std::isnan(parameter.grad()[0].item<float>()));
}

}  // namespace
}  // namespace lerobot::optim
