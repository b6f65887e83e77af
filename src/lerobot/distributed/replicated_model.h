// DDP: every rank holds the whole model, and gradients are averaged over the ranks while backward
// goes on (torch's c10d::Reducer).
//
//   buckets     1 MB, then 25 MB, in the reverse order of the parameters, which is about the order
//               of their gradients; without find_unused_parameters, and with static_graph, they are
//               built anew after the first update in the order in which gradients really came
//               (static_graph: only without gradient accumulation)
//   buffers     rank 0's at the start; running statistics again after every update's backward, so
//               that its batches alone make them
#pragma once

#include <memory>

#include "lerobot/distributed/training_model.h"

namespace lerobot::distributed {

/// Gives `policy` rank 0's parameters and buffers. Throws Error when the ranks' parameters differ
/// in number, shape or type.
std::unique_ptr<TrainingModel> make_replicated_model(policy::Policy& policy, const World& world,
                                                     const config::AcceleratorConfig& options);

}  // namespace lerobot::distributed
