// From arguments and files to a TrainConfig, and back to LeRobot's files.
//
// The way of a value: a struct's default, then the file of --config_path (or the config.json of
// --policy.path), then the command line. The optimizer and scheduler start from the policy's preset
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

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
  /// `optimizer.*` and `scheduler.*` that the command line or the file chose against the policy's
  /// preset.
  std::set<std::string> preset_overrides;
  /// Rates that the policy gives to groups of its own parameters ("policy.optimizer_lr_backbone"):
  /// --optimizer.lr does not change them.
  std::map<std::string, double> group_rates;
  /// Sentences that the user should read at the start of the run.
  std::vector<std::string> notices;
  bool help = false;
};

/// How what lies in repositories of the Hub comes to this machine. Without functions nothing does,
/// and a repository's name is a path that doesn't exist. They throw Error.
struct HubFiles {
  /// The folder with the config.json, weights and processors of a policy's repository.
  std::function<std::filesystem::path(const std::string& repo_id,
                                      const std::optional<std::string>& revision)>
      policy;
  /// The train_config.json of a repository: that of its policy, else of its latest checkpoint.
  std::function<std::filesystem::path(const std::string& repo_id)> train_config;
  /// The train_config.json of a repository's latest checkpoint, which is brought into
  /// `output_dir` (null: the recorded one) for a resume.
  std::function<std::filesystem::path(const std::string& repo_id,
                                      const std::optional<std::string>& output_dir)>
      checkpoint;
};

/// Parses `--a.b=value`, `--a.b value` (YAML or JSON values, `null`), `--config_path=` (JSON or
/// YAML; file, folder, checkpoint or `last`) overridden by the other flags, `--policy.path=`. The
/// last of repeated flags wins, an object given for a group or a map fills in what it names. With
/// --help nothing else is looked at. Throws one UsageError that lists every unknown option (with
/// the nearest name), wrong type, value out of range, broken rule and unsupported capability, one a
/// line.
///
/// With resume=true, checkpoint_path becomes the checkpoint of --config_path and
/// policy.pretrained_path its pretrained_model, as in LeRobot. The default policy.push_to_hub=true
/// becomes false with a notice when no policy.repo_id says where to.
TrainCommandLine parse_train_command_line(std::span<const std::string> arguments,
                                          const PolicyTypes& policies, const HubFiles& hub = {});

/// Gives config.optimizer and config.scheduler the policy's preset where nothing else chose them,
/// and returns what to log: one sentence for every chosen value that wins over the preset. Done
/// again it changes nothing.
std::vector<std::string> resolve_training_preset(TrainCommandLine& command_line);

/// Fills in job_name (the policy's type) and output_dir
/// (outputs/train/YYYY-MM-DD/HH-MM-SS_JOB_NAME, local time) where they are null. Checks nothing on
/// disk.
void resolve_output(TrainConfig& config);

/// The text of --help: grouped, one line an option, with defaults.
std::string train_help(const PolicyTypes& policies);

/// Every broken rule of a complete configuration, one message each, naming the option. What only
/// one type of policy knows is checked by PolicyConfig::validate(), which is asked too.
std::vector<std::string> validate(const TrainConfig& config);

/// train_config.json and config.json as LeRobot writes them with to_python_json(json, 4): order and
/// defaults; fields that LeRobot 0.6.1 does not know only when they differ from their defaults,
/// since it refuses a file with a field that it does not know.
Json to_json(const TrainConfig& config, const PolicyTypes& policies);
Json to_json(const PolicyConfig& config, const PolicyTypes& policies);

/// Reads config.json of a policy. Throws UsageError that names the file and every unknown,
/// duplicated or ill-typed field.
std::shared_ptr<PolicyConfig> read_policy_config(const std::filesystem::path& file,
                                                 const PolicyTypes& policies);

}  // namespace lerobot::config
