// Which process of a job this is, as its launcher says: torchrun and lerobot-launch (RANK,
// WORLD_SIZE, ...), Open MPI's mpirun (OMPI_COMM_WORLD_*), Slurm's srun (SLURM_* inside a step).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lerobot/distributed/launch/environment.h"

namespace lerobot::distributed {

struct LaunchEnvironment {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;
  std::int64_t local_world_size = 1;
  /// Where the ranks find each other.
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  /// The launcher itself serves the store at that address (torchrun): rank 0 is a client too.
  bool launcher_serves_store = false;
  /// Counts restarts of the whole group: keys of an earlier attempt must not be read.
  std::int64_t restart_count = 0;
};

/// What the first launcher says whose variables are there, in this order:
///   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT
///   mpirun    OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK and _LOCAL_SIZE
///   srun      SLURM_PROCID, SLURM_LOCALID and the tasks of a step (SLURM_STEP_ID) of several;
///             outside a step, in a batch script or a shell, Slurm's variables say nothing
/// MASTER_ADDR and MASTER_PORT serve the last two as well. Without them, mpirun's ranks on one
/// machine meet at 127.0.0.1, srun's at the step's first node, at a port made of the job's id.
///
/// Nothing for a process that was started alone or as the only one. Throws Error naming the
/// variables when only some of a group are set, or when their values contradict each other or are
/// no numbers.
std::optional<LaunchEnvironment> read_launch_environment(const Environment& environment);
/// The same from this process's environment.
std::optional<LaunchEnvironment> read_launch_environment();

/// The first machine of a list as Slurm writes it: "node003" for "node[003-008,011],login1".
std::string first_slurm_node(std::string_view list);

/// Throws Error naming the first variable by which accelerate configures an engine, unless
/// LEROBOT_ALLOW_ACCELERATE_ENV is set to something: ACCELERATE_USE_FSDP,
/// ACCELERATE_USE_PARALLELISM_CONFIG, ACCELERATE_GRADIENT_ACCUMULATION_STEPS, and what begins with
/// FSDP_, PARALLELISM_CONFIG_ or ACCELERATE_DYNAMO_. `accelerate launch` as a plain launcher sets
/// the last group too, to say that there is no such engine (ACCELERATE_DYNAMO_BACKEND=no): that
/// passes.
void refuse_accelerate_environment(const Environment& environment);
void refuse_accelerate_environment();

}  // namespace lerobot::distributed
