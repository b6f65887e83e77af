// From arguments and files to a TrainConfig, and back to LeRobot's files.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "lerobot/base/json.h"
#include "lerobot/config/policy_types.h"
#include "lerobot/config/train_config.h"

namespace lerobot::config {

struct TrainCommandLine {
  TrainConfig config;
  /// Dotted names that the command line itself gave ("optimizer.lr"), not those from --config_path.
  std::set<std::string> given;
  /// --config_path resolved to the train_config.json file, when given.
  std::optional<std::filesystem::path> config_file;
  bool help = false;
};

/// Parses `--a.b=value`, `--a.b value` (YAML or JSON values, `null`), `--config_path=` (JSON or YAML;
/// file, folder, checkpoint or `last`) overridden by the other flags, `--policy.path=`. Throws one
/// UsageError that lists every unknown option (with the nearest name), wrong type, value out of
/// range and unsupported capability.
TrainCommandLine parse_train_command_line(std::span<const std::string> arguments,
                                          const PolicyTypes& policies);

/// The text of --help: grouped, one line an option, with defaults.
std::string train_help(const PolicyTypes& policies);

/// Every broken rule of a complete configuration, one message each, naming the option.
std::vector<std::string> validate(const TrainConfig& config);

/// train_config.json and config.json as LeRobot writes them (order, defaults; newer fields only when
/// they differ from their defaults).
Json to_json(const TrainConfig& config, const PolicyTypes& policies);
Json to_json(const PolicyConfig& config, const PolicyTypes& policies);

/// Reads config.json of a policy; unknown fields are reported by name.
std::shared_ptr<PolicyConfig> read_policy_config(const std::filesystem::path& file,
                                                 const PolicyTypes& policies);

}  // namespace lerobot::config
