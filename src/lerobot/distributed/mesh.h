// How the processes of a run share the model: a grid (dp_replicate, dp_shard).
//
// Ranks of one shard group are consecutive; replicas of a shard lie dp_shard apart.
#pragma once

#include <cstdint>

#include "lerobot/config/train_config.h"

namespace lerobot::distributed {

struct Mesh {
  std::int64_t rank = 0;
  std::int64_t dp_replicate = 1;
  std::int64_t dp_shard = 1;

  std::int64_t world_size() const { return dp_replicate * dp_shard; }
  /// Whether parameters are divided at all (FSDP, HSDP).
  bool is_sharded() const { return dp_shard > 1; }
  /// Which shard this rank holds, and in which replica.
  std::int64_t shard() const { return rank % dp_shard; }
  std::int64_t replica() const { return rank / dp_shard; }
};

/// Resolves -1 and the default (DDP: dp_replicate becomes the world size) against the number of
/// processes and writes the degrees back into `config`, as train_config.json records them. Throws
/// Error naming every degree and the world size when they do not multiply to it, and for degrees
/// that are not supported.
Mesh resolve_mesh(config::ParallelismConfig& config, std::int64_t rank, std::int64_t world_size);

}  // namespace lerobot::distributed
