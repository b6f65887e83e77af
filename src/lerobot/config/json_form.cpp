// Configuration as LeRobot's JSON files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/reflection.h"
#include "lerobot/config/text_value.h"

namespace lerobot::config {

std::vector<std::pair<std::string, ImageTransformConfig>>
ImageTransformsConfig::default_transforms() {
  const auto range = [](const char* name, double low, double high) {
    Json kwargs = Json::object();
    kwargs[name] = {low, high};
    return kwargs;
  };
  Json affine = range("degrees", -5.0, 5.0);
  affine["translate"] = {0.05, 0.05};
  return {{"brightness", {1.0, "ColorJitter", range("brightness", 0.8, 1.2)}},
          {"contrast", {1.0, "ColorJitter", range("contrast", 0.8, 1.2)}},
          {"saturation", {1.0, "ColorJitter", range("saturation", 0.5, 1.5)}},
          {"hue", {1.0, "ColorJitter", range("hue", -0.05, 0.05)}},
          {"sharpness", {1.0, "SharpnessJitter", range("sharpness", 0.5, 1.5)}},
          {"affine", {1.0, "RandomAffine", affine}}};
}

Json to_json(const TrainConfig& config, const PolicyTypes& policies) {
  return Codec<TrainConfig>::write(config, &policies);
}

Json to_json(const PolicyConfig& config, const PolicyTypes& policies) {
  const PolicyType* type = find_policy_type(policies, config.type());
  check_internal(type != nullptr, "to_json: the policy's type is not in the list of types");
  Json json = Json::object();
  json["type"] = type->name;
  json.update(type->write(config));
  return json;
}

std::shared_ptr<PolicyConfig> read_policy_config(const std::filesystem::path& file,
                                                 const PolicyTypes& policies) {
  const ConfigFile content = read_config_file(file);
  std::vector<Problem> problems;
  for (const std::string& name : content.duplicates)
    problems.push_back({name, fmt::format("{}: {}: is given twice", file.string(), name)});
  Reader reader(&policies, &problems, file.string());
  std::shared_ptr<PolicyConfig> config;
  Codec<std::shared_ptr<PolicyConfig>>::read(reader, content.content, config);
  if (problems.empty() && config) {
    config->derive();
    return config;
  }
  std::string lines;
  for (const Problem& problem : problems) {
    if (!lines.empty()) lines += '\n';
    lines += problem.message;
  }
  throw UsageError(lines);
}

}  // namespace lerobot::config
