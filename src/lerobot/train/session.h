// Everything that one training run works with, built in LeRobot's order so that the random numbers
// fall the same way: datasets, policy, processors, optimizer and scheduler, then what a resumed
// checkpoint restores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <c10/core/Device.h>

#include "lerobot/checkpoint/training_state.h"
#include "lerobot/config/command_line.h"
#include "lerobot/optim/ema.h"
#include "lerobot/optim/optimizer.h"
#include "lerobot/optim/scheduler.h"
#include "lerobot/policy/policy.h"
#include "lerobot/processor/policy_processors.h"
#include "lerobot/train/datasets.h"

namespace lerobot::train {

struct Session {
  config::TrainConfig config;
  /// Options of the command line itself: on resume they win over what the checkpoint recorded.
  std::set<std::string> given;
  at::Device device{at::kCPU};
  std::filesystem::path output_dir;
  Datasets datasets;
  std::unique_ptr<policy::Policy> policy;
  std::optional<processor::PolicyProcessors> processors;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Scheduler> scheduler;           // null: constant learning rate
  std::unique_ptr<optim::ExponentialMovingAverage> ema;  // null: switched off
  checkpoint::RngState rng;
  /// Micro-batches that are done when the loop starts, and where the data order then stands.
  LoaderStart start;
};

/// Sets config.policy's features from the dataset (inputs only when it names none) and its device
/// from what the machine has. Throws Error when the policy and the dataset do not fit.
at::Device complete_policy_config(config::TrainConfig& config,
                                  const dataset::DatasetMetadata& metadata);

/// Builds the whole session; nothing on disk is touched. Throws Error or UsageError.
Session make_session(config::TrainConfig config, std::set<std::string> given);

}  // namespace lerobot::train
