#include "lerobot/distributed/mesh.h"

#include <algorithm>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

void refuse_other_divisions(const config::ParallelismConfig& config) {
  const auto refuse = [](const char* option, std::int64_t degree) {
    if (degree != 1) fail_usage("--parallelism.{}={} is not supported: only 1 is", option, degree);
  };
  refuse("context_parallel.ring_degree", config.context_parallel.ring_degree);
  refuse("context_parallel.ulysses_degree", config.context_parallel.ulysses_degree);
  refuse("cfg_parallel", config.cfg_parallel);
}

}  // namespace

Mesh resolve_mesh(config::ParallelismConfig& config, std::int64_t rank, std::int64_t world_size) {
  refuse_other_divisions(config);
  std::int64_t replicas = config.dp_replicate, shards = config.dp_shard;
  if (replicas < 1)
    fail_usage("--parallelism.dp_replicate={}: expected an integer at least 1", replicas);
  if (shards < 1 && shards != -1)
    fail_usage("--parallelism.dp_shard={}: expected -1 or an integer at least 1", shards);

  if (shards == -1)
    shards = std::max<std::int64_t>(world_size / replicas, 1);
  else if (shards == 1 && replicas == 1)
    replicas = world_size;
  const std::int64_t product =
      checked_mul(replicas, shards, "the product of --parallelism.dp_replicate and dp_shard");
  if (product != world_size)
    fail_usage(
        "Parallelism degrees do not multiply to the world size: dp_replicate={} * dp_shard={}{} * "
        "ring=1 * ulysses=1 = {} != WORLD_SIZE={}. Launch {} processes, or change "
        "--parallelism.dp_replicate and --parallelism.dp_shard (-1: all that are left)",
        replicas, shards, config.dp_shard == -1 ? " (what -1 leaves)" : "", product, world_size,
        product);
  config.dp_replicate = replicas;
  config.dp_shard = shards;
  return {rank, replicas, shards};
}

}  // namespace lerobot::distributed
