#include "lerobot/config/capabilities.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "lerobot/config/command_line.h"

namespace lerobot::config {
namespace {

struct Capability {
  std::string_view option;
  /// The values that work. Anything else is refused.
  std::vector<Json> supported;
  /// What follows "--option=value ".
  std::string_view refusal = "is not supported yet";
};

const std::vector<Capability>& capabilities() {
  static const std::vector<Capability> table = {
      // Not this program's job.
      {"env",
       {nullptr},
       "is not supported: simulators are not run here; evaluate the checkpoint with lerobot-eval"},
      {"reward_model",
       {nullptr},
       "is not supported: only policies are trained here; train reward models with LeRobot"},
      {"sample_weighting",
       {nullptr},
       "is not supported: every frame counts the same; choose episodes with --dataset.episodes"},
      {"job.target",
       {nullptr, "local"},
       "is not supported: log in to that machine and run lerobot-train there"},
      {"wandb.enable",
       {false},
       "is not supported: pass --trackio.enable=true, which keeps the run on this machine"},
      {"policy.use_amp",
       {false},
       "is not supported: pass --accelerator.mixed_precision=bf16 instead"},
      // Tracking.
      {"trackio.space_id",
       {nullptr},
       "is not supported: runs are tracked on this machine; leave it out, and bring the project to "
       "a Space with trackio's own `trackio sync --project PROJECT --space-id OWNER/NAME`"},
      // Newer LeRobot's spelling.
      {"tracker",
       {},
       "is not supported: pass --trackio.enable=true, and --trackio.project and --trackio.name "
       "(there tracker.run_id)"},
      // Streaming.
      {"max_num_shards", {}},
      // Several processes.
      {"parallelism.context_parallel.ring_degree", {1}},
      {"parallelism.context_parallel.ulysses_degree", {1}},
      {"parallelism.cfg_parallel", {1}},
      // Speed.
      {"accelerator.compile.enabled", {false}},
      {"accelerator.activation_checkpointing.mode", {"none"}},
  };
  return table;
}

/// The value at a dotted name; null pointer when the object has no such entry.
const Json* find(const Json& object, std::string_view name) {
  const Json* value = &object;
  while (!name.empty()) {
    const std::string part(name.substr(0, name.find('.')));
    name.remove_prefix(std::min(name.size(), part.size() + 1));
    if (!value->is_object() || !value->contains(part)) return nullptr;
    value = &(*value)[part];
  }
  return value;
}

std::string shown(const Json& value) {
  return value.is_string() ? value.get<std::string>() : short_json(value);
}

/// LeRobot takes any class of torchvision.transforms.v2; these are the ones that its own
/// configuration uses.
void check_transforms(std::vector<Problem>& problems, const ImageTransformsConfig& transforms) {
  if (!transforms.enable) return;
  for (const auto& [name, transform] : transforms.tfs) {
    const auto& type = transform.type;
    if (type == "ColorJitter" || type == "SharpnessJitter" || type == "RandomAffine" ||
        type == "Identity")
      continue;
    const std::string option = fmt::format("dataset.image_transforms.tfs['{}'].type", name);
    problems.push_back({option, fmt::format("--{}={} is not supported yet; there are ColorJitter, "
                                            "SharpnessJitter, RandomAffine and Identity",
                                            option, type)});
  }
}

}  // namespace

std::vector<Problem> unsupported_options(const TrainConfig& config, const PolicyTypes& policies) {
  std::vector<Problem> problems;
  const Json tree = to_json(config, policies);
  for (const Capability& capability : capabilities()) {
    // Newer options are in the tree only when they differ from their defaults.
    const Json* value = find(tree, capability.option);
    if (value == nullptr) continue;
    if (std::find(capability.supported.begin(), capability.supported.end(), *value) !=
        capability.supported.end())
      continue;
    if (capability.supported.empty() && value->is_null()) continue;
    const std::string what = value->is_structured()
                                 ? fmt::format("--{}.*", capability.option)
                                 : fmt::format("--{}={}", capability.option, shown(*value));
    problems.push_back(
        {std::string(capability.option), fmt::format("{} {}", what, capability.refusal)});
  }
  check_transforms(problems, config.dataset.image_transforms);
  return problems;
}

std::string unsupported_name(std::string_view name) {
  if (name.ends_with("discover_packages_path"))
    return "is not supported: plug-ins written in Python can't be loaded";
  for (const Capability& capability : capabilities())
    if (name == capability.option ||
        (name.starts_with(capability.option) && name[capability.option.size()] == '.'))
      return std::string(capability.refusal);
  return "";
}

}  // namespace lerobot::config
