// Builds torch's process groups. The one place that includes Gloo's headers, which are costly.
#include <cstdlib>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lerobot/base/error.h"
#include "lerobot/distributed/communicator_state.h"
#include "lerobot/distributed/nccl.h"

namespace lerobot::distributed {
namespace {

using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupOptions& options) {
  const auto gloo = ProcessGroupGloo::Options::create(options.timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  gloo->devices.push_back(interface != nullptr && *interface != '\0'
                              ? ProcessGroupGloo::createDeviceForInterface(interface)
                              : ProcessGroupGloo::createDeviceForHostname(options.address));
  return c10::make_intrusive<ProcessGroupGloo>(store, static_cast<int>(options.rank),
                                               static_cast<int>(options.size), gloo);
}

}  // namespace

Communicator make_communicator(const c10::intrusive_ptr<c10d::Store>& store,
                               std::shared_ptr<RankMonitor> monitor, const GroupOptions& options) {
  auto state = std::make_shared<Communicator::State>();
  state->rank = options.rank;
  state->size = options.size;
  state->monitor = std::move(monitor);
  state->clock = options.clock;
  try {
    state->gloo = make_gloo(c10::make_intrusive<c10d::PrefixStore>("gloo", store), options);
    state->group = c10::make_intrusive<ProcessGroup>(store, static_cast<int>(options.rank),
                                                     static_cast<int>(options.size));
    state->group->setBackend(at::kCPU, ProcessGroup::GLOO, state->gloo);
    state->group->setDefaultBackend(ProcessGroup::GLOO);
    if (options.device.is_cuda()) {
      state->nccl = make_nccl(c10::make_intrusive<c10d::PrefixStore>("nccl", store), options);
      state->group->setBackend(at::kCUDA, ProcessGroup::NCCL, state->nccl);
      state->group->setDefaultBackend(ProcessGroup::NCCL);
    }
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    state->fail_operation("connecting the ranks", error);
  }
  state->finisher = std::make_unique<ThreadPool>(1, "reduction");
  return Communicator(std::move(state));
}

}  // namespace lerobot::distributed
