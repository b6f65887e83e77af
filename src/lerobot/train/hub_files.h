// Policies and checkpoints that lie in repositories of the Hub.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lerobot/config/command_line.h"

namespace lerobot::train {

/// For parse_train_command_line().
config::HubFiles hub_files();

/// A policy on this machine.
struct PretrainedPolicy {
  std::filesystem::path folder;  ///< with config.json
  /// Of a repository the commit that was read; null for a folder.
  std::optional<std::string> commit;
};

/// The policy that --policy.path=`path` means: a folder, a checkpoint, or a repository of the Hub
/// at `revision` (null: main), whose files are downloaded into the cache of Python's
/// huggingface_hub. Throws Error, HubError.
PretrainedPolicy fetch_policy(const std::string& path, const std::optional<std::string>& revision);

}  // namespace lerobot::train
