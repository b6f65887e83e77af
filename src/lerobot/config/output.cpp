// Names of a run that the user left open.
#include <ctime>

#include <fmt/chrono.h>

#include "lerobot/config/command_line.h"

namespace lerobot::config {

void resolve_output(TrainConfig& config) {
  if (!config.job_name) config.job_name = config.policy ? config.policy->type() : "train";
  if (config.output_dir) return;
  const std::tm now = fmt::localtime(std::time(nullptr));
  config.output_dir =
      fmt::format("outputs/train/{:%Y-%m-%d}/{:%H-%M-%S}_{}", now, now, *config.job_name);
}

}  // namespace lerobot::config
