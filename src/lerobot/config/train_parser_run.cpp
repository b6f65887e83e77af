// What depends on more than one option: resume, the optimizer and scheduler, publishing.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/config/train_parser.h"
#include "lerobot/config/training_preset.h"
#include "lerobot/hub/location.h"

namespace lerobot::config {

namespace fs = std::filesystem;

/// --dataset.root=hf://buckets/OWNER/NAME is another way to write the Bucket's name, and
/// hf://datasets/OWNER/NAME tells the name of a dataset.
void TrainParser::take_hub_root() {
  DatasetConfig& dataset = result_.config.dataset;
  if (!dataset.root || !dataset.root->starts_with("hf://")) return;
  try {
    const hub::Location location = hub::classify_location(*dataset.root);
    if (location.kind == hub::LocationKind::kHfDataset && dataset.repo_id.empty())
      dataset.repo_id = location.repo_id;
    if (location.kind != hub::LocationKind::kHfBucket) return;
    dataset.repo_id = hub::bucket_of_root(location, dataset.repo_id);
    dataset.repo_type = "bucket";
    dataset.root.reset();
  } catch (const UsageError& error) {
    if (dataset.root->starts_with("hf://buckets/")) problem("dataset.root", error.what());
  }
}

void TrainParser::resume() {
  TrainConfig& config = result_.config;
  config.checkpoint_path.reset();
  if (!config.resume) return;
  if (last_argument("config_path") == nullptr) {
    problem("resume", "--resume=true: needs --config_path=OUTPUT_DIR/checkpoints/last");
    return;
  }
  if (last_argument("policy.path") != nullptr) {
    problem("policy.path",
            "--policy.path and --resume=true exclude each other: the checkpoint has the policy");
    return;
  }
  if (!result_.config_file) return;  // reported already
  fs::path pretrained = result_.config_file->parent_path();
  // From inside a checkpoint the path need not name it.
  if (pretrained.empty()) pretrained = ".";
  if (!pretrained.has_parent_path() ||
      std::any_of(pretrained.begin(), pretrained.end(),
                  [](const fs::path& part) { return part == "." || part == ".."; }))
    pretrained = fs::canonical(pretrained);
  const fs::path checkpoint = pretrained.parent_path();
  std::error_code error;
  if (!fs::is_directory(checkpoint / "training_state", error)) {
    problem("config_path",
            fmt::format("--config_path={}: {} is not in a checkpoint: there is no {}, so there is "
                        "nothing to resume{}",
                        last_argument("config_path")->text, file_name_,
                        (checkpoint / "training_state").string(),
                        result_.given.contains("resume")
                            ? ""
                            : "; resume=true stands in that file: --resume=false begins anew"));
    return;
  }
  config.checkpoint_path = checkpoint.string();
  if (config.policy) config.policy->pretrained_path = pretrained.string();
}

/// Without resume the preset comes first, then what the file chose; with resume what is recorded.
template <class T>
void TrainParser::start_from_preset(std::optional<T>& value, const std::optional<T>& preset,
                                    const std::optional<T>& file_preset) {
  const TrainConfig& config = result_.config;
  if (!config.use_policy_training_preset || !config.policy) return;
  if (config.resume) {
    if (!value) value = preset;
    return;
  }
  std::set<std::string> written;
  for (const auto& [name, file] : from_file_) written.insert(name);
  PresetBase<T> base = preset_base(preset, value, file_preset, written);
  value = std::move(base.value);
  result_.preset_overrides.merge(base.chosen);
}

void TrainParser::read_optimizer_and_scheduler() {
  TrainConfig& config = result_.config;
  const bool preset = config.use_policy_training_preset && config.policy;
  const PolicyConfig* before = policy_of_file_ ? policy_of_file_.get() : config.policy.get();
  // A resumed run that never had a scheduler does not get one now.
  const bool recorded = config.resume && from_file_.contains("optimizer");
  if (preset) {
    start_from_preset<OptimizerConfig>(config.optimizer, config.policy->optimizer_preset(),
                                       before->optimizer_preset());
    if (!recorded)
      start_from_preset<SchedulerConfig>(config.scheduler, config.policy->scheduler_preset(),
                                         before->scheduler_preset());
  }
  choose_types();
  const Json optimizer = Codec<std::optional<OptimizerConfig>>::write(config.optimizer, nullptr);
  const Json scheduler = Codec<std::optional<SchedulerConfig>>::write(config.scheduler, nullptr);
  for (const std::string group : {"optimizer", "scheduler"}) {
    const std::string type = group + ".type";
    for (const std::string& name : {group, type})
      if (const Argument* argument = last_argument(name)) apply(*argument);
    const bool absent = group == "optimizer" ? !config.optimizer : !config.scheduler;
    for (const Argument& argument : arguments_) {
      if (first_part(argument.name) != group || argument.name == type) continue;
      // Without any class, a wrong value of --scheduler.type has been reported: that is enough.
      if (absent && last_argument(type) != nullptr) continue;
      apply(argument);
    }
    report_missing(group);
    const Json& recorded_values = group == "optimizer" ? optimizer : scheduler;
    for (const std::string& name : result_.given) {
      if (name != group && first_part(name) != group) continue;
      if (preset && !config.resume) result_.preset_overrides.insert(name);
      if (!config.resume || name == group) continue;
      const std::string key = name.substr(group.size() + 1);
      if (recorded_values.is_object() && recorded_values.contains(key))
        result_.notices.push_back(fmt::format("--{}={} overrides the checkpoint's {}", name,
                                              last_argument(name) ? last_argument(name)->text : "",
                                              short_json(recorded_values[key])));
    }
  }
  if (config.resume && preset && policy_of_file_) {
    const auto was = Codec<OptimizerConfig>::write(before->optimizer_preset(), nullptr);
    const auto is = Codec<OptimizerConfig>::write(config.policy->optimizer_preset(), nullptr);
    if (was != is)
      result_.notices.push_back(
          "--policy.optimizer_* has no effect on a resumed run, which keeps the checkpoint's "
          "optimizer: pass --optimizer.* to change it");
  }
}

/// Some classes have options without defaults.
void TrainParser::report_missing(const std::string& group) {
  const TrainConfig& config = result_.config;
  if (group == "scheduler" ? !config.scheduler : !config.optimizer) return;
  for (const Option& option : options_) {
    if (option.trait != OptionTrait::kRequired || first_part(option.name) != group) continue;
    if (!applies(option, types_) || result_.given.contains(option.name)) continue;
    if (from_file_.contains(option.name)) continue;
    const auto preset =
        config.policy ? config.policy->scheduler_preset() : std::optional<SchedulerConfig>();
    if (config.use_policy_training_preset && preset &&
        Codec<SchedulerConfig>::type_of(*preset) == option.choice)
      continue;
    problem(option.name, fmt::format("--{} is required by --{}.type={}: {}", option.name, group,
                                     option.choice, option.help));
  }
}

/// Publishing is on by default in LeRobot, and needs a repository: without one the default is off.
void TrainParser::choose_publishing() {
  constexpr const char* kOption = "policy.push_to_hub";
  auto& policy = result_.config.policy;
  if (!policy || !policy->push_to_hub || policy->repo_id) return;
  if (result_.given.contains(kOption) || from_file_.contains(kOption)) return;
  policy->push_to_hub = false;
  result_.notices.push_back(
      "The trained policy stays on this machine; --policy.repo_id=OWNER/NAME publishes it "
      "(--policy.push_to_hub=false)");
}

}  // namespace lerobot::config
