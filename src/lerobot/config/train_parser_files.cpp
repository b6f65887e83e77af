// --config_path and --policy.path.
#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/config/train_parser.h"

namespace lerobot::config {

namespace fs = std::filesystem;

void TrainParser::open_config_file() {
  const Argument* argument = last_argument("config_path");
  if (argument == nullptr) return;
  result_.given.insert("config_path");
  const fs::path path = bring_config_file(argument->text);
  try {
    result_.config_file = find_train_config(path);
    file_name_ = result_.config_file->string();
    file_ = read_config_file(*result_.config_file);
    for (const std::string& name : file_.duplicates)
      problem(name, fmt::format("{}: {}: is given twice", file_name_, name));
  } catch (const Error& error) {
    problem("config_path", fmt::format("--config_path={}: {}", argument->text, error.what()));
  }
}

/// `path`, or where on this machine the repository that it names has been brought: of a resumed run
/// its whole checkpoint. What goes wrong there is no mistake of the command line.
fs::path TrainParser::bring_config_file(const std::string& path) const {
  if (!hub_.train_config || !may_be_on_hub(path)) return path;
  const Argument* resume = last_argument("resume");
  if (resume == nullptr || parse_value(resume->text) != true) return hub_.train_config(path);
  const Argument* output_dir = last_argument("output_dir");
  return hub_.checkpoint(path, output_dir ? std::optional(output_dir->text) : std::nullopt);
}

/// The same of a policy, at --policy.pretrained_revision.
fs::path TrainParser::bring_policy(const std::string& path) const {
  if (!hub_.policy || !may_be_on_hub(path)) return path;
  const Argument* revision = last_argument("policy.pretrained_revision");
  const bool none = revision == nullptr || parse_value(revision->text).is_null();
  return hub_.policy(path, none ? std::nullopt : std::optional(revision->text));
}

void TrainParser::read_policy() {
  const Argument* path = last_argument("policy.path");
  const Argument* type = last_argument("policy.type");
  if (path != nullptr && type != nullptr)
    problem("policy.path",
            "--policy.path and --policy.type exclude each other: the folder's "
            "config.json has the type");
  Json section;
  if (file_.content.is_object() && file_.content.contains("policy"))
    section = file_.content["policy"];
  if (path != nullptr) {
    read_policy_file(path->text, nullptr);
  } else if (section.is_object() && section.contains("path")) {
    const Json from = section["path"];
    section.erase("path");
    section.erase("type");
    if (from.is_string())
      read_policy_file(from.get<std::string>(), &section);
    else
      problem("policy.path", fmt::format("{}: policy.path: expected text, found {}", file_name_,
                                         short_json(from)));
  } else if (!section.is_null()) {
    if (section.is_object() && !section.contains("type") && type != nullptr)
      section["type"] = type->text;
    if (section.is_object() && section.contains("type") && section["type"].is_string())
      choose_policy(section["type"].get<std::string>());
    Reader reader = file_reader();
    reader.known_names = known_names_;
    const auto scope = reader.enter_field("policy");
    Codec<std::shared_ptr<PolicyConfig>>::read(reader, section, result_.config.policy);
    note_file(reader, "", file_name_);
  }
  if (result_.config.policy) policy_of_file_ = result_.config.policy->clone();
}

/// The policy of a folder, then what the configuration file says over it.
void TrainParser::read_policy_file(const std::string& path, const Json* overrides) {
  auto& policy = result_.config.policy;
  const fs::path place = bring_policy(path);
  try {
    const fs::path folder = find_pretrained(place);
    const std::string file = (folder / kPolicyConfigFile).string();
    const ConfigFile content = read_config_file(file);
    for (const std::string& name : content.duplicates)
      problem("policy." + name, fmt::format("{}: {}: is given twice", file, name));
    Reader reader(&policies_, &problems_, file);
    Codec<std::shared_ptr<PolicyConfig>>::read(reader, content.content, policy);
    note_file(reader, "policy.", file);
    if (!policy) return;
    policy->pretrained_revision.reset();  // of what this policy was trained from, if anything
    if (overrides != nullptr) {
      Reader file = file_reader();
      file.merge_maps = true;
      const auto scope = file.enter_field("policy");
      Codec<std::shared_ptr<PolicyConfig>>::read(file, *overrides, policy);
      note_file(file, "", file_name_);
    }
    // A repository keeps its name: what the files record holds on other machines, too.
    policy->pretrained_path = may_be_on_hub(path) ? path : folder.string();
    if (overrides == nullptr) result_.given.insert("policy.path");
  } catch (const Error& error) {
    problem("policy.path", fmt::format("--policy.path={}: {}", path, error.what()));
  }
}

/// An optimizer or scheduler that a file gives without its type is of the command line's type, or
/// else of the preset's.
void TrainParser::complete_types(Json& content) const {
  const auto complete = [&](const char* group, const Json& preset) {
    if (!content.contains(group) || !content[group].is_object() || content[group].contains("type"))
      return;
    if (const Argument* type = last_argument(fmt::format("{}.type", group)))
      content[group]["type"] = type->text;
    else if (preset.is_object())
      content[group]["type"] = preset["type"];
  };
  Json use_preset = content.value("use_policy_training_preset", Json(true));
  if (const Argument* argument = last_argument("use_policy_training_preset"))
    use_preset = parse_value(argument->text);
  const bool preset = use_preset == true && result_.config.policy;
  Json optimizer, scheduler;
  if (preset) {
    optimizer = Codec<OptimizerConfig>::write(result_.config.policy->optimizer_preset(), nullptr);
    scheduler = Codec<std::optional<SchedulerConfig>>::write(
        result_.config.policy->scheduler_preset(), nullptr);
  }
  complete("optimizer", optimizer);
  complete("scheduler", scheduler);
}

/// Everything but the policy, which comes before, and the optimizer and scheduler as they stand.
void TrainParser::read_rest_of_file() {
  if (!file_.content.is_object()) return;
  Json content = file_.content;
  content.erase("policy");
  drop_legacy_fields(content);
  complete_types(content);
  Reader reader = file_reader();
  reader.known_names = known_names_;
  Codec<TrainConfig>::read(reader, content, result_.config);
  note_file(reader, "", file_name_);
}

}  // namespace lerobot::config
