#include "lerobot/config/train_options.h"

#include "lerobot/config/train_config.h"

namespace lerobot::config {

std::vector<Option> train_options(const PolicyTypes& policies) {
  std::vector<Option> options;
  Codec<TrainConfig>::describe(options, Option{}, TrainConfig{}, &policies);
  Option config_path;
  config_path.name = "config_path";
  config_path.help = "configuration to start from: a file (JSON, YAML), a checkpoint or a run";
  config_path.expects = "text";
  options.push_back(std::move(config_path));
  return options;
}

std::string_view first_part(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot == name.npos ? std::string_view() : name.substr(0, dot);
}

bool applies(const Option& option, const ChosenTypes& chosen) {
  if (option.choice.empty()) return true;
  const std::string_view group = first_part(option.name);
  const auto& type = group == "policy"      ? chosen.policy
                     : group == "optimizer" ? chosen.optimizer
                                            : chosen.scheduler;
  return !type || *type == option.choice;
}

}  // namespace lerobot::config
