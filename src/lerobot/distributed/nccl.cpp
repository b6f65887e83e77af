#include "lerobot/distributed/nccl.h"

#include "lerobot/base/error.h"

#ifdef LEROBOT_CUDA
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace lerobot::distributed {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupOptions& options) {
#ifdef LEROBOT_CUDA
  const auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = options.timeout;
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(options.rank),
                                                           static_cast<int>(options.size), nccl);
  group->setBoundDeviceId(options.device);
  return group;
#else
  fail(
      "{} needs a build with CUDA (cmake --preset cuda), and this one has none: use "
      "--policy.device=cpu",
      options.device.str());
#endif
}

}  // namespace lerobot::distributed
