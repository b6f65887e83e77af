// Memory for time: a part of the network whose intermediate results are not kept for backward but
// computed a second time there (torch.utils.checkpoint).
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/module.h"

namespace lerobot::nn {

/// call(inputs), for which backward will keep nothing but `inputs`: it calls again, with the same
/// autocast. Gradients are those of the plain call, bit for bit.
///
/// `call` uses the parameters of `module` and no others, draws no random numbers, and changes
/// nothing when it is called twice (no running statistics). The parameters are inputs of the node
/// in the graph, so that whoever waits for their gradients (data parallel training, wrap units)
/// sees them as in a plain call. Without gradients: the plain call.
at::Tensor recompute_in_backward(const Module& module, std::vector<at::Tensor> inputs,
                                 std::function<at::Tensor(const std::vector<at::Tensor>&)> call);

}  // namespace lerobot::nn
