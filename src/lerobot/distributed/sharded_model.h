// FSDP and HSDP: parameters, gradients and optimizer state divided on dimension 0 over the ranks of
// a shard group, replicated over mesh().dp_replicate groups.
//
//   forward    a unit is gathered before its module is called, and the next one meanwhile; it is
//              freed after the call (reshard_after_forward)
//   backward   gathered again when the gradient of its output is there, freed when its own
//              gradients are; these are then averaged over the ranks while backward goes on
//
// The root unit (what is in no other) is whole from the beginning of forward to the end of
// backward. All ranks call the same modules in the same order.
#pragma once

#include <memory>

#include "lerobot/distributed/training_model.h"

namespace lerobot::distributed {

/// Divides `policy` in place. Throws as choose_wrap_units() and resolve_precision() do.
std::unique_ptr<TrainingModel> make_sharded_model(policy::Policy& policy, const World& world,
                                                  const config::AcceleratorConfig& options);

}  // namespace lerobot::distributed
