// How the processes of a run share the model: from the options, the launcher and, on resume, what
// the checkpoint recorded.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "lerobot/config/train_config.h"
#include "lerobot/distributed/mesh.h"

namespace lerobot::train {

/// Resolves the degrees of config.parallelism against the number of processes and writes them back.
/// Throws Error when they do not multiply to it, UsageError when another option does not fit them
/// (a checkpoint format of sharded runs, an average of weights).
///
/// A checkpoint records resolved degrees, which fit only as many processes as it had. On resume
/// they say what kind of run it was, unless the command line gives one (`given`): not sharded: a
/// copy of the model in every process; sharded: over all processes; HSDP: parts as before when they
/// divide the processes. A sharded run that goes on unsharded writes model.safetensors.
distributed::Mesh resolve_layout(config::TrainConfig& config, const std::set<std::string>& given,
                                 std::int64_t rank, std::int64_t world_size);

}  // namespace lerobot::train
