// The policy's preset against chosen values of the optimizer and scheduler.
//
// LeRobot lets the preset replace every --optimizer.* value under use_policy_training_preset=true,
// silently. Here chosen values win: those of the command line, and those of a file that differ from
// the preset of the file's own policy (a recorded run repeats its optimizer, which is no choice).
#pragma once

#include <optional>
#include <set>
#include <string>

#include "lerobot/config/optim_config.h"
#include "lerobot/config/policy_config.h"

namespace lerobot::config {

/// What the command line's values are laid over, and the names that the file chose.
template <class T>
struct PresetBase {
  std::optional<T> value;
  std::set<std::string> chosen;  // "optimizer.lr"
};

/// `preset`: of the run's policy; `file`: from the file; `file_preset`: of the policy as the file
/// has it.
PresetBase<OptimizerConfig> preset_base(const std::optional<OptimizerConfig>& preset,
                                        const std::optional<OptimizerConfig>& file,
                                        const std::optional<OptimizerConfig>& file_preset,
                                        const std::set<std::string>& written);
PresetBase<SchedulerConfig> preset_base(const std::optional<SchedulerConfig>& preset,
                                        const std::optional<SchedulerConfig>& file,
                                        const std::optional<SchedulerConfig>& file_preset,
                                        const std::set<std::string>& written);

}  // namespace lerobot::config
