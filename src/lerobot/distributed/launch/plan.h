// What a command line comes to on this machine: which program, how many workers, which ranks.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lerobot/distributed/launch/environment.h"
#include "lerobot/distributed/launch/machine.h"
#include "lerobot/distributed/launch/options.h"

namespace lerobot::distributed {

struct LaunchPlan {
  std::string program;  // the file that is executed
  std::vector<std::string> arguments;
  Environment environment;  // what all workers have in common

  int nodes = 1;
  int node_rank = 0;
  int local_workers = 1;
  std::string master_addr;
  int master_port = 0;  // 0: a free one for every start of the workers
  std::string run_id;
  std::string role;

  int max_restarts = 0;
  double shutdown_grace_s = 30;
  std::string log_dir;  // empty: no files
  StreamSelection redirects;
  StreamSelection tee;
  std::set<int> local_ranks_filter;

  /// What was chosen for the user, one line each.
  std::vector<std::string> notes;

  int world_size() const { return nodes * local_workers; }
  int rank(int local_rank) const { return node_rank * local_workers + local_rank; }
  bool shows(int local_rank) const {
    return local_ranks_filter.empty() || local_ranks_filter.contains(local_rank);
  }
};

/// Decides, and checks that the program can be started. Throws UsageError for options that do not
/// go together and Error for a program that is missing or not executable.
LaunchPlan make_launch_plan(const LaunchOptions& options, const Environment& environment,
                            const Machine& machine);

/// The environment of one worker: torchrun's variables, of the start number `restart` (0: the
/// first) on `master_port`.
Environment worker_environment(const LaunchPlan& plan, int local_rank, int restart,
                               int master_port);

/// A TCP port of 127.0.0.1 that nobody listens on at this moment. Throws SystemError.
int free_local_port();

}  // namespace lerobot::distributed
