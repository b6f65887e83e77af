// Where workers' output is kept: torchrun's tree
//   <log_dir>/<run id>_<random>/attempt_<restart>/<local rank>/stdout.log and stderr.log
#pragma once

#include <string>

#include "lerobot/base/files.h"
#include "lerobot/distributed/launch/plan.h"
#include "lerobot/distributed/launch/worker_output.h"

namespace lerobot::distributed {

class LogFolder {
 public:
  /// Makes the run's folder if the plan keeps anything. Throws SystemError.
  explicit LogFolder(const LaunchPlan& plan);

  /// The run's folder; empty when nothing is kept.
  const fs::path& path() const { return path_; }

  /// How a stream that is read from `pipe` is shown and kept, its file created.
  StreamRoute route(const LaunchPlan& plan, int local_rank, int restart, Stream stream,
                    UniqueFd pipe) const;

 private:
  fs::path path_;
};

}  // namespace lerobot::distributed
