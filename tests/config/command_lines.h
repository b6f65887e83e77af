// Command lines of ACT, whose files LeRobot has written, and of a policy that exists here only.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/reflection.h"
#include "lerobot/policy/act/act_config.h"

namespace lerobot::config::test {

/// A policy whose preset has a scheduler.
struct DiffusionLikeConfig final : PolicyConfig {
  std::int64_t horizon = 16;
  double optimizer_lr = 1e-4;
  std::int64_t scheduler_warmup_steps = 500;

  std::string type() const override { return "diffusion"; }
  std::vector<std::string> validate() const override { return {}; }
  DeltaIndices delta_indices() const override { return {}; }
  OptimizerConfig optimizer_preset() const override {
    return AdamConfig{.lr = optimizer_lr, .weight_decay = 1e-6, .betas = {0.95, 0.999}};
  }
  std::optional<SchedulerConfig> scheduler_preset() const override {
    return DiffuserSchedulerConfig{.num_warmup_steps = scheduler_warmup_steps};
  }
  std::unique_ptr<PolicyConfig> clone() const override {
    return std::make_unique<DiffusionLikeConfig>(*this);
  }
};
BOOST_DESCRIBE_STRUCT(DiffusionLikeConfig, (PolicyConfig),
                      (horizon, optimizer_lr, scheduler_warmup_steps))

inline const PolicyTypes& policies() {
  static const PolicyTypes types{policy_type<policy::ActConfig>(),
                                 policy_type<DiffusionLikeConfig>()};
  return types;
}

using Words = std::vector<std::string>;

inline TrainCommandLine parse(const Words& words) {
  return parse_train_command_line(words, policies());
}

/// The options that a plain run needs, and more.
inline Words plain(std::initializer_list<std::string> more) {
  Words words{"--dataset.repo_id=someone/data", "--policy.type=act"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The lines of the UsageError that parsing throws; empty when it throws none.
inline std::string problems(const Words& words) {
  try {
    parse(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

inline const policy::ActConfig& act(const TrainCommandLine& command_line) {
  return dynamic_cast<const policy::ActConfig&>(*command_line.config.policy);
}

inline const std::string kCheckpoints = std::string(LEROBOT_TEST_DATA) + "/checkpoints";

}  // namespace lerobot::config::test
