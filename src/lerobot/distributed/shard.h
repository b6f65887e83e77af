// Dividing a tensor's rows among ranks, as torch's Shard(0) placement does: chunks of
// ceil(rows / shards) rows, so that the last shards may be short or empty. A tensor without
// dimensions counts as one row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lerobot::distributed {

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  bool operator==(const RowRange&) const = default;
};

/// Rows of every shard but the last ones.
std::int64_t rows_per_shard(std::int64_t rows, std::int64_t shards);
/// The rows of one shard; an empty one begins at the end.
RowRange shard_rows(std::int64_t rows, std::int64_t shards, std::int64_t shard);

/// What this process holds of a tensor of the model, under the tensor's name.
struct LocalTensor {
  std::string name;
  /// Rows [first_row, first_row + tensor.size(0)) of the whole tensor, or all of it when it is not
  /// divided. A handle: writing through it changes the model.
  at::Tensor tensor;
  std::vector<std::int64_t> global_size;
  std::int64_t first_row = 0;
  /// False: every rank holds the same whole tensor.
  bool divided = false;

  /// Bytes of the whole tensor.
  std::uint64_t global_bytes() const;
};

}  // namespace lerobot::distributed
