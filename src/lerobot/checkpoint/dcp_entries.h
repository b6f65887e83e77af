// What accelerate saves of a model and of an optimizer, under its names:
//
//   model.<name of the tensor>                            ("model", name)
//   optimizer.state.<name of the parameter>.exp_avg       ("optimizer", "state", name, "exp_avg")
//   optimizer.param_groups.<i>.lr                         ("optimizer", "param_groups", i, "lr")
#pragma once

#include <span>
#include <vector>

#include "lerobot/checkpoint/dcp_writer.h"
#include "lerobot/distributed/shard.h"
#include "lerobot/optim/optimizer.h"

namespace lerobot::checkpoint {

/// The entries of weights: parameters and buffers.
std::vector<LocalDcpEntry> model_entries(std::span<const distributed::LocalTensor> model);

/// The entries of an optimizer of `model`'s parameters. State is divided as its parameter is. A
/// parameter that never had a gradient gets a state of zeros, which means the same: torch's loader
/// wants one for every parameter. The state's tensors are handles.
std::vector<LocalDcpEntry> optimizer_entries(const optim::Optimizer& optimizer,
                                             std::span<const distributed::LocalTensor> model);

}  // namespace lerobot::checkpoint
