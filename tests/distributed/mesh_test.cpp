#include "lerobot/distributed/mesh.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace lerobot::distributed {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

config::ParallelismConfig degrees(std::int64_t dp_replicate, std::int64_t dp_shard) {
  config::ParallelismConfig config;
  config.dp_replicate = dp_replicate;
  config.dp_shard = dp_shard;
  return config;
}

std::string refusal(config::ParallelismConfig config, std::int64_t world_size) {
  return error_of([&] { resolve_mesh(config, 0, world_size); });
}

void expect_resolved(config::ParallelismConfig config, std::int64_t world_size,
                     std::int64_t dp_replicate, std::int64_t dp_shard) {
  const Mesh mesh = resolve_mesh(config, world_size - 1, world_size);
  EXPECT_EQ(mesh.dp_replicate, dp_replicate);
  EXPECT_EQ(mesh.dp_shard, dp_shard);
  EXPECT_EQ(mesh.world_size(), world_size);
  EXPECT_EQ(mesh.is_sharded(), dp_shard > 1);
  EXPECT_EQ(config.dp_replicate, dp_replicate) << "train_config.json records the resolved degree";
  EXPECT_EQ(config.dp_shard, dp_shard) << "train_config.json records the resolved degree";
}

TEST(Mesh, SeveralProcessesWithoutDegreesAreReplicas) {
  expect_resolved(degrees(1, 1), 1, 1, 1);
  expect_resolved(degrees(1, 1), 4, 4, 1);
}

TEST(Mesh, MinusOneShardsOverAllThatAreLeft) {
  expect_resolved(degrees(1, -1), 1, 1, 1);
  expect_resolved(degrees(1, -1), 4, 1, 4);
  expect_resolved(degrees(2, -1), 8, 2, 4);
  expect_resolved(degrees(4, -1), 4, 4, 1);
}

TEST(Mesh, DegreesThatMultiplyToTheWorldSizeAreTaken) {
  expect_resolved(degrees(1, 3), 3, 1, 3);
  expect_resolved(degrees(2, 2), 4, 2, 2);
  expect_resolved(degrees(3, 1), 3, 3, 1);
}

TEST(Mesh, ShardsAreConsecutiveAndReplicasLieApart) {
  config::ParallelismConfig config = degrees(2, 4);
  const Mesh mesh = resolve_mesh(config, 6, 8);
  EXPECT_EQ(mesh.replica(), 1);
  EXPECT_EQ(mesh.shard(), 2);
}

TEST(Mesh, OtherProductsAreRefusedWithEveryDegree) {
  EXPECT_THAT(refusal(degrees(1, 2), 1),
              StartsWith("Parallelism degrees do not multiply to the world size: dp_replicate=1 * "
                         "dp_shard=2 * ring=1 * ulysses=1 = 2 != WORLD_SIZE=1."));
  EXPECT_THAT(refusal(degrees(2, 2), 8), HasSubstr("= 4 != WORLD_SIZE=8"));
  EXPECT_THAT(refusal(degrees(2, 1), 4), HasSubstr("= 2 != WORLD_SIZE=4"));
  EXPECT_THAT(refusal(degrees(2, -1), 5),
              HasSubstr("dp_replicate=2 * dp_shard=2 (what -1 leaves) * ring=1"));
  EXPECT_THAT(refusal(degrees(8, -1), 4),
              HasSubstr("dp_replicate=8 * dp_shard=1 (what -1 leaves) * ring=1"));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refusal(degrees(kMost, kMost), 4), HasSubstr("dp_replicate and dp_shard overflows"));
}

TEST(Mesh, DegreesBelowOneAreRefused) {
  EXPECT_THAT(refusal(degrees(0, 1), 4), HasSubstr("--parallelism.dp_replicate=0: expected"));
  EXPECT_THAT(refusal(degrees(-1, 1), 4), HasSubstr("--parallelism.dp_replicate=-1: expected"));
  EXPECT_THAT(refusal(degrees(1, 0), 4), HasSubstr("--parallelism.dp_shard=0: expected -1 or"));
  EXPECT_THAT(refusal(degrees(1, -2), 4), HasSubstr("--parallelism.dp_shard=-2: expected -1 or"));
}

TEST(Mesh, OtherDivisionsAreRefusedByName) {
  config::ParallelismConfig config;
  config.context_parallel.ring_degree = 2;
  EXPECT_THAT(refusal(config, 2), HasSubstr("--parallelism.context_parallel.ring_degree=2"));
  config = {};
  config.context_parallel.ulysses_degree = 4;
  EXPECT_THAT(refusal(config, 4), HasSubstr("--parallelism.context_parallel.ulysses_degree=4"));
  config = {};
  config.cfg_parallel = 2;
  EXPECT_THAT(refusal(config, 2), HasSubstr("--parallelism.cfg_parallel=2"));
}

}  // namespace
}  // namespace lerobot::distributed
