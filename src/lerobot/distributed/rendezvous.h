// How the processes of a run find each other: rank 0 (or the launcher) serves a c10d::TCPStore at
// MASTER_ADDR:MASTER_PORT, in which rank 0 says where the ranks' monitor listens.
#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lerobot/distributed/launch_environment.h"
#include "lerobot/distributed/mesh.h"
#include "lerobot/distributed/rank_monitor.h"
#include "lerobot/distributed/world.h"

namespace lerobot::distributed {

struct Meeting {
  /// Keys of this run and restart attempt.
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<RankMonitor> monitor;
};

/// Returns when all ranks have come. Throws Error; Interrupted on Ctrl-C.
Meeting meet(const LaunchEnvironment& environment, const Mesh& mesh, const WorldOptions& options);

}  // namespace lerobot::distributed
