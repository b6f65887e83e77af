// The policies that this trainer knows, by the name that --policy.type takes. One explicit list in
// registry.cpp: adding a policy is one line there.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "lerobot/config/policy_config.h"
#include "lerobot/config/policy_types.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/policy/policy.h"
#include "lerobot/processor/policy_processors.h"

namespace lerobot::policy {

/// Every known policy type, as the command line and configuration files see it.
const config::PolicyTypes& policy_types();

/// A policy with fresh weights, drawn from torch's global CPU generator exactly as LeRobot draws
/// them, then moved to config.device. Pretrained weights of a vision backbone are looked up, and
/// downloaded if need be, only with `load_pretrained_backbone`: pass false when full weights follow
/// (the random draws are the same either way). Throws Error naming the option that is in the way.
std::unique_ptr<Policy> make_policy(const config::PolicyConfig& config,
                                    bool load_pretrained_backbone);

/// Loads model.safetensors into a policy. Not strict, as LeRobot: missing and unexpected names are
/// logged as warnings. Names of compiled modules ("unet._orig_mod.x") count as the plain ones. A
/// tensor of another shape throws Error naming it and both shapes, before anything is changed.
void load_policy_weights(Policy& policy, const std::filesystem::path& file);

/// The pre- and postprocessor of a new policy, with the dataset's statistics. Throws Error naming
/// feature and statistic when the configured normalisation needs one that is missing or not finite.
processor::PolicyProcessors make_processors(const config::PolicyConfig& config,
                                            const dataset::DatasetStats& statistics);

/// The processors saved in a checkpoint's pretrained_model folder, with this run's device,
/// features, normalisation modes and `rename_map` in place of the saved ones. Resume:
/// `new_statistics` null, the saved statistics win. Fine-tuning: the new dataset's statistics
/// replace them.
processor::PolicyProcessors load_processors(const config::PolicyConfig& config,
                                            const std::filesystem::path& directory,
                                            const std::map<std::string, std::string>& rename_map,
                                            const dataset::DatasetStats* new_statistics);

}  // namespace lerobot::policy
