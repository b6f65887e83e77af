#include "lerobot/config/training_preset.h"

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/reflection.h"

namespace lerobot::config {
namespace {

template <class T>
Json json_of(const std::optional<T>& value) {
  return Codec<std::optional<T>>::write(value, nullptr);
}

template <class T>
PresetBase<T> base_of(const std::string& group, const std::optional<T>& preset,
                      const std::optional<T>& file, const std::optional<T>& file_preset,
                      const std::set<std::string>& written) {
  PresetBase<T> base{preset, {}};
  if (!file) return base;
  const Json complete = json_of(file);
  const Json own = json_of(file_preset);
  Json recorded = Json::object();
  for (const auto& [key, value] : complete.items())
    if (written.contains(group + "." + key)) recorded[key] = value;
  Json chosen = Json::object();
  for (const auto& [key, value] : recorded.items())
    if (!own.is_object() || !own.contains(key) || own[key] != value) chosen[key] = value;
  if (chosen.empty()) return base;
  for (const auto& [key, value] : chosen.items()) base.chosen.insert(group + "." + key);
  std::vector<Problem> impossible;
  Reader reader(nullptr, &impossible);
  Codec<std::optional<T>>::read(reader, chosen.contains("type") ? recorded : chosen, base.value);
  check_internal(impossible.empty(), "preset_base: a written optimizer can't be read");
  return base;
}

std::string shown(const Json& value) {
  return value.is_string() ? value.get<std::string>() : short_json(value);
}

/// One sentence for every name of `group` that was chosen against the preset.
void explain(std::vector<std::string>& sentences, const TrainCommandLine& command_line,
             const std::string& group, const Json& preset, const Json& chosen) {
  const auto source = [&](const std::string& name) {
    const bool from_file = !command_line.given.contains(name) && command_line.config_file;
    return from_file ? fmt::format("{}: {}", command_line.config_file->string(), name)
                     : "--" + name;
  };
  for (const std::string& name : command_line.preset_overrides) {
    if (!name.starts_with(group + ".")) {
      if (name == group && chosen.is_null() && !preset.is_null())
        sentences.push_back(fmt::format("{}=null overrides the policy's preset {}", source(name),
                                        short_json(preset)));
      continue;
    }
    const std::string key = name.substr(group.size() + 1);
    if (chosen.is_null() || !chosen.contains(key)) continue;
    if (preset.is_null()) {
      if (key == "type")
        sentences.push_back(fmt::format("{}={} is used; the policy's preset has no {}",
                                        source(name), shown(chosen[key]), group));
      continue;
    }
    std::string sentence =
        fmt::format("{}={} overrides the policy's preset", source(name), shown(chosen[key]));
    sentence += preset.contains(key) ? " " + shown(preset[key]) : ", which has no such option";
    if (name == "optimizer.lr")
      for (const auto& [option, rate] : command_line.group_rates)
        sentence += fmt::format("; the parameters of --{}={} keep that rate", option, rate);
    sentences.push_back(std::move(sentence));
  }
}

}  // namespace

PresetBase<OptimizerConfig> preset_base(const std::optional<OptimizerConfig>& preset,
                                        const std::optional<OptimizerConfig>& file,
                                        const std::optional<OptimizerConfig>& file_preset,
                                        const std::set<std::string>& written) {
  return base_of("optimizer", preset, file, file_preset, written);
}

PresetBase<SchedulerConfig> preset_base(const std::optional<SchedulerConfig>& preset,
                                        const std::optional<SchedulerConfig>& file,
                                        const std::optional<SchedulerConfig>& file_preset,
                                        const std::set<std::string>& written) {
  return base_of("scheduler", preset, file, file_preset, written);
}

std::vector<std::string> resolve_training_preset(TrainCommandLine& command_line) {
  TrainConfig& config = command_line.config;
  std::vector<std::string> sentences;
  if (!config.use_policy_training_preset || !config.policy) return sentences;
  const std::optional<OptimizerConfig> optimizer = config.policy->optimizer_preset();
  const std::optional<SchedulerConfig> scheduler = config.policy->scheduler_preset();
  if (!config.resume) {
    explain(sentences, command_line, "optimizer", json_of(optimizer), json_of(config.optimizer));
    explain(sentences, command_line, "scheduler", json_of(scheduler), json_of(config.scheduler));
  }
  bool scheduler_chosen = false;  // null may be the choice
  for (const std::string& name : command_line.preset_overrides)
    scheduler_chosen = scheduler_chosen || name.starts_with("scheduler");
  if (!config.optimizer) config.optimizer = optimizer;
  // A resumed run without a recorded scheduler never had one.
  if (!config.scheduler && !scheduler_chosen && !config.resume) config.scheduler = scheduler;
  return sentences;
}

}  // namespace lerobot::config
