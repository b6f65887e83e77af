#include "lerobot/train/model_card.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lerobot/base/json.h"

namespace lerobot::train {
namespace {

constexpr const char* kDefaultLicense = "apache-2.0";

/// A YAML scalar that stays text whatever it looks like: JSON strings are YAML.
std::string quoted(const std::string& text) { return to_python_json(Json(text), -1, false); }

/// What needs no quotes in YAML.
std::string scalar(const std::string& text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '/' || c == '.';
  }) && std::isalpha(static_cast<unsigned char>(text.front()));
  const bool is_word_of_yaml = text == "true" || text == "false" || text == "null" ||
                               text == "yes" || text == "no" || text == "on" || text == "off";
  return plain && !is_word_of_yaml ? text : quoted(text);
}

std::string front_matter(const config::TrainConfig& config) {
  const config::PolicyConfig& policy = *config.policy;
  std::set<std::string> tags = {"robotics", "lerobot", policy.type()};
  if (policy.tags) tags.insert(policy.tags->begin(), policy.tags->end());
  std::string out = "---\n";
  out += fmt::format("datasets: {}\n", scalar(config.dataset.repo_id));
  out += "library_name: lerobot\n";
  out += fmt::format("license: {}\n", scalar(policy.license.value_or(kDefaultLicense)));
  out += fmt::format("model_name: {}\n", scalar(policy.type()));
  out += "pipeline_tag: robotics\ntags:\n";
  for (const std::string& tag : tags) out += fmt::format("- {}\n", scalar(tag));
  return out + "---\n";
}

std::string method_of(const std::string& type) {
  if (type == "act")
    return "Action Chunking with Transformers ([paper](https://huggingface.co/papers/2304.13705)): "
           "a transformer that sees the robot's cameras and state and predicts a chunk of actions "
           "at once, learnt from demonstrations.";
  if (type == "diffusion")
    return "Diffusion Policy ([paper](https://huggingface.co/papers/2303.04137)): actions are "
           "drawn by denoising, step by step, under the robot's cameras and state.";
  return fmt::format("A policy of type `{}`.", type);
}

std::string_view type_name(config::FeatureType type) {
  for (const auto& [value, name] : config::enum_names(type))
    if (value == type) return name;
  return "";
}

std::string feature_table(const config::FeatureMap& features) {
  std::string out = "| feature | type | shape |\n| --- | --- | --- |\n";
  for (const auto& [name, feature] : features)
    out += fmt::format("| `{}` | {} | ({}) |\n", name, type_name(feature.type),
                       fmt::join(feature.shape, ", "));
  return out;
}

/// The last part of a camera's name: "observation.images.top" is "top".
std::vector<std::string> cameras(const config::FeatureMap& features) {
  std::vector<std::string> names;
  for (const auto& [name, feature] : features)
    if (feature.type == config::FeatureType::kVisual)
      names.push_back(name.substr(name.rfind('.') + 1));
  return names;
}

std::string details(const config::TrainConfig& config, const dataset::DatasetMetadata& metadata) {
  const config::PolicyConfig& policy = *config.policy;
  std::string out = fmt::format("- License: {}\n", policy.license.value_or(kDefaultLicense));
  if (policy.use_peft)
    out += "- Adapter: LoRA; the policy that it belongs on is named in `adapter_config.json`\n";
  if (policy.pretrained_path && !config.resume)
    out += fmt::format("- Fine-tuned from: `{}`\n", *policy.pretrained_path);
  if (metadata.info().robot_type) out += fmt::format("- Robot: {}\n", *metadata.info().robot_type);
  const auto names = cameras(policy.input_features);
  if (!names.empty()) out += fmt::format("- Cameras: {}\n", fmt::join(names, ", "));
  return out;
}

std::string dataset_section(const config::TrainConfig& config,
                            const dataset::DatasetMetadata& metadata) {
  const dataset::DatasetInfo& info = metadata.info();
  std::string out =
      fmt::format("- Repository: [{0}](https://huggingface.co/{1}/{0})\n", config.dataset.repo_id,
                  config.dataset.repo_type == "bucket" ? "buckets" : "datasets");
  out += fmt::format("- Episodes: {}\n- Frames: {}\n- Frames per second: {}\n", info.total_episodes,
                     info.total_frames, info.fps);
  std::vector<std::string> tasks;
  constexpr std::int64_t kMostTasks = 10;
  const auto count = static_cast<std::int64_t>(metadata.tasks().size());
  for (std::int64_t i = 0; i < count && i < kMostTasks; ++i)
    if (const std::string* text = metadata.tasks().find(i)) tasks.push_back(*text);
  if (!tasks.empty())
    out += fmt::format("- Tasks: {}{}\n", fmt::join(tasks, "; "),
                       count > kMostTasks ? fmt::format(" and {} more", count - kMostTasks) : "");
  return out;
}

std::string training_section(const config::TrainConfig& config) {
  std::string out =
      fmt::format("| setting | value |\n| --- | --- |\n| steps | {} |\n", config.steps);
  out += fmt::format("| batch size per process | {} |\n", config.batch_size);
  if (config.optimizer)
    std::visit(
        [&](const auto& options) { out += fmt::format("| learning rate | {} |\n", options.lr); },
        *config.optimizer);
  out += fmt::format("| seed | {} |\n",
                     config.seed ? fmt::to_string(*config.seed) : std::string("none"));
  out += fmt::format(
      "| precision | {} |\n| trained with | lerobot.cpp |\n",
      config.accelerator.mixed_precision == "no" ? "float32" : config.accelerator.mixed_precision);
  return out + "\nEvery option is in `train_config.json`.\n";
}

}  // namespace

std::string model_card(const config::TrainConfig& config,
                       const dataset::DatasetMetadata& metadata) {
  const config::PolicyConfig& policy = *config.policy;
  const std::string repo = policy.repo_id.value_or("OWNER/NAME");
  std::string out = front_matter(config);
  out += fmt::format("\n# Model Card for {}\n\n{}\n\n", policy.type(), method_of(policy.type()));
  out += fmt::format(
      "It was trained with lerobot.cpp and is read by "
      "[LeRobot](https://github.com/huggingface/lerobot).\n\n{}",
      details(config, metadata));
  out += fmt::format("\n## Inputs\n\n{}\n## Outputs\n\n{}", feature_table(policy.input_features),
                     feature_table(policy.output_features));
  out += fmt::format("\n## Dataset\n\n{}\n## Training\n\n{}", dataset_section(config, metadata),
                     training_section(config));
  out += fmt::format(
      "\n## Use\n\nTrain on from these weights:\n\n```\nlerobot-train --policy.path={} "
      "--dataset.repo_id={} --output_dir=outputs/train/next\n```\n\nRun it on a robot with "
      "LeRobot: "
      "[documentation](https://huggingface.co/docs/lerobot/il_robots).\n\n## Evaluation\n\nNot "
      "filled in yet.\n",
      repo, config.dataset.repo_id);
  return out;
}

}  // namespace lerobot::train
