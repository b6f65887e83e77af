// The rules of a complete configuration, with the option that each broken one is about.
#pragma once

#include <vector>

#include "lerobot/config/reflection.h"
#include "lerobot/config/train_config.h"

namespace lerobot::config {

/// What follows "--checkpoint_format=dcp" when a run is not sharded.
inline constexpr const char* kFormatNeedsShards =
    " requires a sharded run (--parallelism.dp_shard != 1); checkpoints of runs that are not "
    "sharded are always safetensors";

/// Values out of range and rules between options. Messages begin with "--option".
/// Whether a resumed run's format fits its layout is decided with the layout (train/layout.h).
std::vector<Problem> broken_rules(const TrainConfig& config);

}  // namespace lerobot::config
