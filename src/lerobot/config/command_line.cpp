#include "lerobot/config/command_line.h"

#include <algorithm>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/config/capabilities.h"
#include "lerobot/config/nearest_name.h"
#include "lerobot/config/train_parser.h"
#include "lerobot/config/validate.h"

namespace lerobot::config {
namespace {

/// {"a": {"b": value}} for the name a.b.
Json nested(std::string_view name, Json value) {
  const std::size_t dot = name.rfind('.');
  Json object = Json::object();
  object[std::string(dot == name.npos ? name : name.substr(dot + 1))] = std::move(value);
  return dot == name.npos ? object : nested(name.substr(0, dot), std::move(object));
}

/// The option that a message is about, without the item of a list or map.
std::string option_of(const Problem& problem) {
  return problem.option.substr(0, problem.option.find('['));
}

}  // namespace

TrainCommandLine TrainParser::parse(std::span<const std::string> arguments) {
  Arguments split = split_arguments(arguments);
  result_.help = split.help;
  if (split.help) return std::move(result_);
  arguments_ = std::move(split.arguments);
  problems_ = std::move(split.problems);
  choose_types();

  open_config_file();
  read_policy();
  read_rest_of_file();
  apply_policy_arguments();
  apply_arguments();
  take_hub_root();
  resume();
  read_optimizer_and_scheduler();
  choose_publishing();
  check();
  if (!problems_.empty()) throw_problems();
  return std::move(result_);
}

// --- Look-ups ---

const Argument* TrainParser::last_argument(std::string_view name) const {
  const auto found = std::find_if(arguments_.rbegin(), arguments_.rend(),
                                  [&](const Argument& argument) { return argument.name == name; });
  return found == arguments_.rend() ? nullptr : &*found;
}

const Option* TrainParser::find_option(std::string_view name) const {
  for (const Option& option : options_)
    if (option.name == name && applies(option, types_)) return &option;
  return nullptr;
}

/// Names are compared with the options of the types that are chosen by now.
void TrainParser::choose_types() {
  const TrainConfig& config = result_.config;
  if (config.policy) types_.policy = config.policy->type();
  if (config.optimizer)
    types_.optimizer = std::string(Codec<OptimizerConfig>::type_of(*config.optimizer));
  if (config.scheduler)
    types_.scheduler = std::string(Codec<SchedulerConfig>::type_of(*config.scheduler));
  know_names();
}

void TrainParser::choose_policy(const std::string& type) {
  if (find_policy_type(policies_, type) == nullptr) return;
  types_.policy = type;
  know_names();
}

void TrainParser::know_names() {
  known_names_.clear();
  for (const Option& option : options_)
    if (applies(option, types_)) known_names_.push_back(option.name);
}

Reader TrainParser::file_reader() {
  Reader reader(&policies_, &problems_, file_name_);
  reader.plain_scalars = file_.yaml;
  return reader;
}

void TrainParser::note_file(const Reader& reader, const std::string& prefix,
                            const std::string& file) {
  for (const std::string& name : reader.seen()) from_file_[prefix + name] = file;
}

// --- The command line ---

void TrainParser::apply_policy_arguments() {
  auto& policy = result_.config.policy;
  // The type first: it decides which options there are.
  for (const std::string_view name : {"policy", "policy.type"}) {
    const Argument* argument = last_argument(name);
    if (argument == nullptr) continue;
    if (name == "policy.type" && last_argument("policy.path") != nullptr) continue;
    apply(*argument);
  }
  choose_types();
  for (const Argument& argument : arguments_) {
    if (first_part(argument.name) != "policy" || argument.name == "policy.type" ||
        argument.name == "policy.path")
      continue;
    if (policy || find_option(argument.name) == nullptr) apply(argument);
  }
  if (!policy) return;
  policy->derive();
  const PolicyType* type = find_policy_type(policies_, policy->type());
  const Json fields = type->write(*policy);
  for (const auto& [key, value] : fields.items())
    if (key.starts_with("optimizer_lr_") && value.is_number())
      result_.group_rates["policy." + key] = value.get<double>();
}

void TrainParser::apply_arguments() {
  for (const Argument& argument : arguments_) {
    const std::string_view group = first_part(argument.name);
    const bool elsewhere = group == "policy" || group == "optimizer" || group == "scheduler" ||
                           argument.name == "policy" || argument.name == "optimizer" ||
                           argument.name == "scheduler" || argument.name == "config_path";
    if (!elsewhere) apply(argument);
  }
}

void TrainParser::apply(const Argument& argument) {
  const Option* option = find_option(argument.name);
  if (option == nullptr) return report_unknown(argument);
  if (option->trait == OptionTrait::kRecorded)
    return problem(argument.name,
                   fmt::format("--{}={}: is set by a resumed run itself; pass --config_path",
                               argument.name, argument.text));
  Reader reader(&policies_, &problems_);
  reader.plain_scalars = true;
  reader.known_names = known_names_;
  reader.set_text(argument.name, argument.text);
  // LeRobot merges the maps of the command line into those of the file.
  reader.merge_maps = from_file_.contains(argument.name);
  Codec<TrainConfig>::read(reader, nested(argument.name, parse_value(argument.text)),
                           result_.config);
  choose_types();
  for (const std::string& name : reader.seen())
    if (const Option* seen = find_option(name); seen != nullptr && !seen->group)
      result_.given.insert(name);
  result_.given.insert(argument.name);
}

void TrainParser::report_unknown(const Argument& argument) {
  const std::string what = fmt::format("--{}={}", argument.name, argument.text);
  if (const std::string why = unsupported_name(argument.name); !why.empty())
    return problem(argument.name, fmt::format("{} {}", what, why));
  for (const Option& option : options_) {
    if (option.map && argument.name.starts_with(option.name + "."))
      return problem(argument.name,
                     fmt::format("{}: --{} is given as a whole: --{}='{{name: value}}'", what,
                                 option.name, option.name));
    if (option.name == argument.name && !option.choice.empty()) {
      const std::string group(first_part(option.name));
      return problem(argument.name, fmt::format("{}: unknown option of this {}; it belongs to "
                                                "--{}.type={}",
                                                what, group, group, option.choice));
    }
  }
  const std::string nearest = nearest_name(argument.name, known_names_);
  problem(argument.name,
          nearest.empty() ? fmt::format("{}: unknown option; --help lists all", what)
                          : fmt::format("{}: unknown option; did you mean --{}?", what, nearest));
}

// --- Checks ---

/// Whether it says that something is missing which a file holds that could not be read: that is
/// reported already, and the user has made one mistake, not two.
bool TrainParser::may_be_in_unread_file(const Problem& problem) const {
  if (problem.message.find(" is required") == std::string::npos) return false;
  const bool config_unread =
      file_.content.is_null() && (last_argument("config_path") != nullptr || result_.config.resume);
  const bool policy_unread = last_argument("policy.path") != nullptr && !result_.config.policy;
  return config_unread || (policy_unread && problem.option == "policy.type");
}

void TrainParser::check() {
  const TrainConfig& config = result_.config;
  std::vector<Problem> found;
  if (config.policy)
    find_policy_type(policies_, config.policy->type())->check(found, "policy", *config.policy);
  for (auto& more : {broken_rules(config), unsupported_options(config, policies_)})
    found.insert(found.end(), more.begin(), more.end());
  for (Problem& problem : found) {
    const std::string option = option_of(problem);
    if (may_be_in_unread_file(problem)) continue;
    // One line an option: one that could not be read has its default now, which is not what the
    // user wrote. ("policy" stands for rules among the policy's own options.)
    const bool reported =
        std::any_of(problems_.begin(), problems_.end(), [&](const Problem& other) {
          return (option_of(other) == option && option != "policy") ||
                 other.message == problem.message;
        });
    if (reported) continue;
    const auto file = from_file_.find(option);
    if (file != from_file_.end() && !result_.given.contains(option) &&
        problem.message.starts_with("--"))
      problem.message = fmt::format("{}: {}", file->second, problem.message.substr(2));
    problems_.push_back(std::move(problem));
  }
}

void TrainParser::throw_problems() {
  std::string lines;
  std::set<std::string> written;
  for (const Problem& problem : problems_) {
    if (!written.insert(problem.message).second) continue;
    if (!lines.empty()) lines += '\n';
    lines += problem.message;
  }
  throw UsageError(lines);
}

TrainCommandLine parse_train_command_line(std::span<const std::string> arguments,
                                          const PolicyTypes& policies, const HubFiles& hub) {
  return TrainParser(policies, hub).parse(arguments);
}

}  // namespace lerobot::config
