// The command line of lerobot-launch, which is torchrun's (torch/distributed/run.py, torch 2.11).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lerobot/distributed/launch/environment.h"

namespace lerobot::distributed {

/// Some of the two streams of some workers: torchrun's "0", "3" or "0:1,1:2". Bit 0 is standard
/// output, bit 1 standard error.
struct StreamSelection {
  int of_all = 0;
  std::map<int, int> by_local_rank;  // when not empty, workers that it does not list have none

  int bits(int local_rank) const;
  bool empty() const { return of_all == 0 && by_local_rank.empty(); }
};

struct LaunchOptions {
  bool help = false;

  std::string nproc_per_node = "1";  // a number, auto, cpu or gpu
  int nnodes = 1;
  std::optional<int> node_rank;

  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  bool standalone = false;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;

  int max_restarts = 0;
  double shutdown_grace_s = 30;
  std::string role = "default";

  std::optional<std::string> log_dir;
  StreamSelection redirects;
  StreamSelection tee;
  std::set<int> local_ranks_filter;  // empty: all are shown

  bool module = false;
  bool no_python = false;
  /// The program and its arguments, unchanged.
  std::vector<std::string> command;
};

/// Reads the command line (without the launcher's own name). As with torchrun, an option that is
/// not given is taken from PET_<OPTION> if the environment has it. Everything from the first
/// argument that is no option, or behind "--", belongs to the program. Throws UsageError with all
/// mistakes, one a line.
LaunchOptions parse_launch_options(std::span<const std::string> arguments,
                                   const Environment& environment);

/// The text of --help.
extern const char* const kLaunchHelp;

}  // namespace lerobot::distributed
