#include "lerobot/distributed/shard.h"

#include <algorithm>

#include <c10/util/accumulate.h>

namespace lerobot::distributed {

std::int64_t rows_per_shard(std::int64_t rows, std::int64_t shards) {
  return (rows + shards - 1) / shards;
}

RowRange shard_rows(std::int64_t rows, std::int64_t shards, std::int64_t shard) {
  const std::int64_t chunk = rows_per_shard(rows, shards);
  const std::int64_t begin = std::min(rows, shard * chunk);
  return {begin, std::min(rows, begin + chunk) - begin};
}

std::uint64_t LocalTensor::global_bytes() const {
  return static_cast<std::uint64_t>(c10::multiply_integers(global_size)) * tensor.element_size();
}

}  // namespace lerobot::distributed
