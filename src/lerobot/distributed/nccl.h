// The one door to NCCL, which only a build with LEROBOT_CUDA has.
#pragma once

#include "lerobot/distributed/communicator_state.h"

namespace lerobot::distributed {

/// torch's process group over NCCL on options.device. Throws Error in a build without CUDA.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupOptions& options);

}  // namespace lerobot::distributed
