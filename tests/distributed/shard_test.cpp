#include "lerobot/distributed/shard.h"

#include <gtest/gtest.h>

namespace lerobot::distributed {
namespace {

TEST(Shard, RowsAreCutAsTorchsChunkDoes) {
  // torch.chunk(torch.empty(5), 3) has 2, 2, 1 rows; of 3 rows over 2 ranks: 2, 1.
  EXPECT_EQ(shard_rows(5, 3, 0), (RowRange{0, 2}));
  EXPECT_EQ(shard_rows(5, 3, 1), (RowRange{2, 2}));
  EXPECT_EQ(shard_rows(5, 3, 2), (RowRange{4, 1}));
  EXPECT_EQ(shard_rows(3, 2, 1), (RowRange{2, 1}));
}

TEST(Shard, RanksBeyondTheEndHaveNoRows) {
  EXPECT_EQ(shard_rows(1, 2, 0), (RowRange{0, 1}));
  EXPECT_EQ(shard_rows(1, 2, 1), (RowRange{1, 0}));
  EXPECT_EQ(shard_rows(5, 4, 2), (RowRange{4, 1}));
  EXPECT_EQ(shard_rows(5, 4, 3), (RowRange{5, 0}));
  EXPECT_EQ(shard_rows(0, 4, 3), (RowRange{0, 0}));
}

}  // namespace
}  // namespace lerobot::distributed
