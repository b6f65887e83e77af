#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lerobot/config/command_line.h"
#include "lerobot/config/train_options.h"

namespace lerobot::config {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kWidestName = 46;

std::string value_text(const Option& option) {
  if (option.trait == OptionTrait::kRequired) return " [required]";
  const Json& value = option.default_value;
  if (value.is_null() || (value.is_structured() && value.empty())) return "";
  // Long defaults are explained in docs/, not here.
  const std::string text = value.is_string() ? value.get<std::string>() : short_json(value);
  return text.empty() || text.size() > 40 ? "" : fmt::format(" [{}]", text);
}

/// One option; what does not fit into the columns goes on below its text.
std::string line(const Option& option, std::size_t width) {
  std::string text = option.help;
  if (!option.limits.choices.empty())
    text += fmt::format(": {}", fmt::join(option.limits.choices, ", "));
  text += value_text(option);
  std::string line = fmt::format("  --{:<{}}  ", option.name, width);
  const std::size_t indent = width + 6;
  for (std::size_t room = kColumns - std::min(line.size(), kColumns - 20); text.size() > room;
       room = kColumns - indent) {
    const std::size_t blank = text.rfind(' ', room);
    if (blank == text.npos) break;
    line += text.substr(0, blank) + "\n" + std::string(indent, ' ');
    text.erase(0, blank + 1);
  }
  return line + text + "\n";
}

struct Section {
  std::string title;
  std::vector<const Option*> options;
};

/// Title of the section in which an option is listed.
std::string section_of(const Option& option) {
  static const std::vector<std::pair<std::string, std::string>> titles = {
      {"dataset.image_transforms", "Image transforms"},
      {"dataset.streaming_", "Streaming"},
      {"dataset", "Dataset"},
      {"policy", "Policy"},
      {"optimizer", "Optimizer"},
      {"scheduler", "Scheduler"},
      {"parallelism", "Several processes"},
      {"accelerator.fsdp", "Sharded training"},
      {"accelerator.ddp", "Several processes"},
      {"accelerator", "Precision and accumulation"},
      {"eval", "Simulators"},
      {"ema", "Moving average of the weights"},
      {"wandb", "Tracking"},
      {"trackio", "Tracking"},
      {"peft", "Adapters"},
      {"job", "Remote jobs"},
  };
  std::string title = "Run";
  for (const auto& [prefix, name] : titles)
    if (option.name.starts_with(prefix + ".") ||
        (prefix.ends_with('_') && option.name.starts_with(prefix))) {
      title = name;
      break;
    }
  if (!option.choice.empty()) title += fmt::format(" {}", option.choice);
  return title;
}

}  // namespace

std::string train_help(const PolicyTypes& policies) {
  const std::vector<Option> options = train_options(policies);
  // Fields that every policy has are listed once, not for each type.
  std::set<std::string> common;
  for (const std::string& name : Codec<PolicyConfig>::names()) common.insert("policy." + name);

  std::vector<Section> sections;
  std::set<std::string> listed;
  for (const Option& option : options) {
    if (option.group || option.trait == OptionTrait::kRecorded) continue;
    const bool shared = common.contains(option.name);
    std::string title = shared ? "Policy" : section_of(option);
    if (shared && !listed.insert(option.name).second) continue;
    auto section = std::find_if(sections.begin(), sections.end(),
                                [&](const Section& each) { return each.title == title; });
    if (section == sections.end())
      section = sections.insert(sections.end(), {std::move(title), {}});
    section->options.push_back(&option);
  }
  // What a run is made of comes first.
  const auto run = std::find_if(sections.begin(), sections.end(),
                                [](const Section& each) { return each.title == "Run"; });
  std::rotate(sections.begin(), run, std::next(run));

  std::string text =
      "Usage: lerobot-train --dataset.repo_id=OWNER/NAME --policy.type=TYPE [--option=value ...]\n"
      "       lerobot-train --config_path=RUN/checkpoints/last --resume=true [--option=value ...]\n"
      "       lerobot-train --policy.path=FOLDER --dataset.repo_id=OWNER/NAME [--option=value "
      "...]\n"
      "       lerobot-train --report RUN    writes RUN/report.html from the records of a run\n"
      "RUN, FOLDER and datasets may be on this machine or repositories of the Hub: OWNER/NAME.\n"
      "\n"
      "Trains a policy from a LeRobotDataset v3. Options are LeRobot's: --a.b=value or --a.b "
      "value;\n"
      "values are JSON or YAML (null, true, '[1, 2]', '{a: b}'). [default]\n";
  for (const Section& section : sections) {
    std::size_t width = 0;
    for (const Option* option : section.options)
      width = std::max(width, std::min(option->name.size(), kWidestName));
    text += fmt::format("\n{}\n", section.title);
    for (const Option* option : section.options) text += line(*option, width);
  }
  return text;
}

}  // namespace lerobot::config
