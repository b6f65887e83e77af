// What of this machine decides how many workers it gets.
#pragma once

#include <string>

#include "lerobot/distributed/launch/environment.h"

namespace lerobot::distributed {

struct Machine {
  int cpus = 1;          // that this process may use
  int cuda_devices = 0;  // that a worker will see
  std::string host_name;
};

/// Looks at the machine without loading CUDA: NVIDIA's driver lists its devices under
/// /proc/driver/nvidia/gpus, and where a container hides that, as /dev/nvidia0 and so on.
/// CUDA_VISIBLE_DEVICES of `environment` limits them.
Machine this_machine(const Environment& environment);

/// Entries of CUDA_VISIBLE_DEVICES that CUDA will use: it stops at the first that is no device.
int visible_devices(const std::string& cuda_visible_devices, int present);

}  // namespace lerobot::distributed
