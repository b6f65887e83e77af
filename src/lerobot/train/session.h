// Everything that one training run works with, built in LeRobot's order so that the random numbers
// fall the same way: datasets, policy, processors, optimizer and scheduler, then what a resumed
// checkpoint restores. Every rank of the world builds one.
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
#include "lerobot/distributed/training_model.h"
#include "lerobot/distributed/world.h"
#include "lerobot/optim/ema.h"
#include "lerobot/optim/loss_scaler.h"
#include "lerobot/optim/optimizer.h"
#include "lerobot/optim/scheduler.h"
#include "lerobot/policy/adapter.h"
#include "lerobot/policy/policy.h"
#include "lerobot/processor/policy_processors.h"
#include "lerobot/train/datasets.h"

namespace lerobot::train {

struct Session {
  config::TrainConfig config;
  /// Options of the command line itself: on resume they win over what the checkpoint recorded.
  std::set<std::string> given;
  /// Outlives the session. Never null.
  const distributed::World* world = nullptr;
  at::Device device{at::kCPU};
  std::filesystem::path output_dir;
  Datasets datasets;
  std::unique_ptr<policy::Policy> policy;
  /// What the policy's adapter is; unset: the whole policy is trained.
  std::optional<policy::AdapterConfig> adapter;
  /// The policy as this world trains it. The optimizer updates its parameters().
  std::unique_ptr<distributed::TrainingModel> model;
  std::optional<processor::PolicyProcessors> processors;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Scheduler> scheduler;  // null: constant learning rate
  /// Null: switched off, or not rank 0, which keeps the average for all.
  std::unique_ptr<optim::ExponentialMovingAverage> ema;
  std::unique_ptr<optim::LossScaler> scaler;  // null: not fp16
  checkpoint::RngState rng;
  /// Micro-batches that are done when the loop starts, and where the data order then stands.
  LoaderStart start;
};

/// The device that --policy.device means on this machine: null and an unavailable one (with a
/// warning) are replaced in the configuration. Throws UsageError when it can't have the run's
/// precision.
at::Device choose_device(config::TrainConfig& config);

/// Sets config.policy's features from the dataset (inputs only when it names none). Throws Error
/// when the policy and the dataset do not fit.
void complete_policy_config(config::TrainConfig& config, const dataset::DatasetMetadata& metadata);

/// Builds the whole session on `device`; nothing on disk is touched but caches of the dataset,
/// which rank 0 fills before the others look. Throws Error or UsageError.
Session make_session(config::TrainConfig config, std::set<std::string> given,
                     const distributed::World& world, at::Device device);

}  // namespace lerobot::train
