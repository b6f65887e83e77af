// The processes of a run: how they found each other, and the groups in which they talk.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "lerobot/distributed/communicator.h"
#include "lerobot/distributed/launch_environment.h"
#include "lerobot/distributed/mesh.h"
#include "lerobot/distributed/step_clock.h"

namespace lerobot::distributed {

struct WorldOptions {
  /// How long to wait for ranks that have not come when the run starts.
  std::chrono::milliseconds start_timeout{std::chrono::minutes(10)};
  /// How long an operation may wait for ranks that are alive. A rank that is gone is noticed within
  /// seconds.
  std::chrono::milliseconds operation_timeout{std::chrono::minutes(30)};
  /// How long a rank may be silent (stopped, or behind a broken network) before the others give it
  /// up. Whole seconds.
  std::chrono::milliseconds silence_limit{std::chrono::seconds(60)};
};

/// The defaults, or what LEROBOT_START_TIMEOUT_S, LEROBOT_OPERATION_TIMEOUT_S and
/// LEROBOT_SILENCE_LIMIT_S say: whole seconds, at least 1. Throws Error for anything else.
WorldOptions read_world_options(const Environment& environment);
WorldOptions read_world_options();

/// One per process; destroyed last. A process that was started alone has a world of one, without
/// sockets or threads.
///
/// While it lives, every rank tells the others that it is alive (rank_monitor.h). When one is gone,
/// waiting operations of the others fail with an Error that names it. A process that has not ended
/// a few seconds later, because it waits for something else or computes, is ended with that message
/// and exit code 1. A World that goes while an exception is on its way tells the others that this
/// rank has failed. A World of several ranks makes the process ignore SIGPIPE.
class World {
 public:
  /// A world of one, which computes on `device`.
  explicit World(at::Device device = at::kCPU);
  /// Meets the other ranks. `device` chooses what groups carry: Gloo always, NCCL for a GPU. Throws
  /// Error saying which ranks have not come within the time-out, or why the store is out of reach.
  /// Ctrl-C ends the wait.
  World(const LaunchEnvironment& environment, const Mesh& mesh, at::Device device,
        const WorldOptions& options = read_world_options());
  World(World&&) noexcept;
  World& operator=(World&&) noexcept;
  ~World();

  const Mesh& mesh() const;
  std::int64_t rank() const { return mesh().rank; }
  std::int64_t size() const { return mesh().world_size(); }
  bool is_main() const { return rank() == 0; }
  std::int64_t local_rank() const;

  /// All ranks.
  const Communicator& all() const;
  /// The ranks that together hold one copy of the model (mesh().replica() is theirs).
  const Communicator& shards() const;
  /// The ranks that hold the same shard.
  const Communicator& replicas() const;
  /// All ranks once more, over Gloo, for one thread beside the training thread (checkpoints).
  const Communicator& background() const;

  /// Where this rank's time goes: the groups count what waiting for others takes, all but
  /// background().
  StepClock& clock() const;

  /// Rank 0 does `work`, which may take hours (a download), and all get its result. The others wait
  /// without a time-out; that rank 0 is gone or has failed still ends them. Called by all ranks in
  /// the same order.
  std::string from_main(const std::function<std::string()>& work) const;

  /// Tells the other ranks why this one ends, so that theirs is "rank 1 failed: <message>" and not
  /// a broken connection. For the program's outermost catch, before the World goes. Nothing when
  /// the failure came from another rank.
  void report_failure(const std::string& message) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The device of this rank: "cuda" without a number becomes cuda:<local_rank>, and the device on
/// which this thread allocates. Throws Error naming the number of GPUs when there are fewer than
/// local ranks.
at::Device rank_device(at::Device device, std::int64_t local_rank);

}  // namespace lerobot::distributed
