#include "lerobot/streaming/virtual_topology.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "tests/support/error_of.h"

namespace lerobot::streaming {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(VirtualTopology, BatchesAreDividedByTheLoadersTurns) {
  // LeRobot's example: 7 batches of 3 endless workers are 3, 2 and 2, and worker 1 is next.
  const auto progress = after_batches({{0, 0, 0}, 0}, 7, 1);
  EXPECT_THAT(progress.samples, ElementsAre(3, 2, 2));
  EXPECT_EQ(progress.turn, 1);
  // The turn goes on from where it was.
  const auto later = after_batches(progress, 4, 10);
  EXPECT_THAT(later.samples, ElementsAre(13, 22, 12));
  EXPECT_EQ(later.turn, 2);
}

TEST(VirtualTopology, SamplesAreDividedInWholeBatchesFirst) {
  EXPECT_EQ(divide_samples(0, 3, 8), (LaneProgress{{0, 0, 0}, 0}));
  EXPECT_EQ(divide_samples(56, 3, 8), (LaneProgress{{24, 16, 16}, 1}));
  EXPECT_EQ(divide_samples(61, 3, 8), (LaneProgress{{24, 21, 16}, 2}));
  EXPECT_EQ(divide_samples(5, 1, 8), (LaneProgress{{5}, 0}));
}

VirtualTopology random_topology(std::mt19937_64& random) {
  std::vector<LaneProgress> ranks(1 + random() % 5);
  for (LaneProgress& rank : ranks) {
    rank.samples.resize(1 + random() % 4);
    for (auto& samples : rank.samples) samples = static_cast<std::int64_t>(random() % 100);
    rank.turn = static_cast<std::int64_t>(random() % rank.samples.size());
  }
  return {static_cast<std::int64_t>(1 + random() % 24), ranks,
          static_cast<std::int64_t>(random() % 50)};
}

TEST(VirtualTopology, ProgressIsWhatTheStepsDelivered) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    const VirtualTopology topology = random_topology(random);
    std::int64_t step = topology.first_step();
    auto expected = topology.progress(step);
    for (int i = 0; i < 20; ++i, ++step) {
      ASSERT_EQ(topology.progress(step), expected);
      for (std::int64_t rank = 0; rank < topology.ranks(); ++rank) {
        LaneProgress& progress = expected[static_cast<std::size_t>(rank)];
        const std::int64_t lane = topology.lane(rank, step);
        ASSERT_EQ(lane, progress.turn);
        progress.samples[static_cast<std::size_t>(lane)] += topology.batch_size();
        progress.turn = (lane + 1) % topology.lanes(rank);
      }
    }
  }
}

TEST(VirtualTopology, AnyNumberOfProcessesDeliversTheRowsOfTheGlobalBatchInOrder) {
  struct Row {
    std::int64_t rank, lane, row;
    bool operator==(const Row&) const = default;
  };
  std::mt19937_64 random(2);
  for (int round = 0; round < 1000; ++round) {
    const VirtualTopology topology = random_topology(random);
    const auto step = topology.first_step() + static_cast<std::int64_t>(random() % 1000);
    std::vector<Row> expected;
    for (std::int64_t rank = 0; rank < topology.ranks(); ++rank)
      for (std::int64_t row = 0; row < topology.batch_size(); ++row)
        expected.push_back({rank, topology.lane(rank, step), row});
    for (std::int64_t processes = 1; processes <= 8; ++processes) {
      if (topology.global_batch() % processes != 0) continue;
      std::vector<Row> rows;
      for (std::int64_t process = 0; process < processes; ++process) {
        const auto parts = topology.parts(step, process, processes);
        const auto range = topology.ranks_of(process, processes);
        ASSERT_EQ(parts.front().rank, range.first);
        ASSERT_EQ(parts.back().rank, range.last);
        for (const BatchPart& part : parts)
          for (std::int64_t i = 0; i < part.rows; ++i)
            rows.push_back({part.rank, part.lane, part.first_row + i});
        ASSERT_EQ(static_cast<std::int64_t>(rows.size()),
                  (process + 1) * topology.global_batch() / processes);
      }
      ASSERT_EQ(rows, expected);
    }
  }
}

TEST(VirtualTopology, AProcessMayServeSeveralRanksOrAPartOfOne) {
  const VirtualTopology topology(8, std::vector<std::int64_t>{2, 3});
  EXPECT_THAT(topology.parts(5, 0, 1), ElementsAre(BatchPart{0, 1, 0, 8}, BatchPart{1, 2, 0, 8}));
  EXPECT_THAT(topology.parts(5, 1, 2), ElementsAre(BatchPart{1, 2, 0, 8}));
  EXPECT_THAT(topology.parts(5, 3, 4), ElementsAre(BatchPart{1, 2, 4, 4}));
}

TEST(VirtualTopology, BadInputIsRefused) {
  const auto make = [](std::int64_t batch, std::vector<LaneProgress> ranks, std::int64_t step) {
    return error_of([&] { VirtualTopology(batch, ranks, step); });
  };
  EXPECT_EQ(make(1, {{{0}, 0}}, 0), "no error");
  EXPECT_THAT(make(0, {{{0}, 0}}, 0), HasSubstr("batch size must be positive, found 0"));
  EXPECT_THAT(make(1, {}, 0), HasSubstr("at least 1 data-parallel rank"));
  EXPECT_THAT(make(1, {{{}, 0}}, 0), HasSubstr("at least 1 worker"));
  EXPECT_THAT(make(1, {{{0, 0}, 2}}, 0), HasSubstr("must be below 2, found 2"));
  EXPECT_THAT(make(1, {{{-1}, 0}}, 0), HasSubstr("samples of a worker must not be negative"));
  EXPECT_THAT(make(1, {{{0}, 0}}, -1), HasSubstr("first step of a stream must not be negative"));
  EXPECT_THAT(make(std::int64_t{1} << 62, {{{0}, 0}, {{0}, 0}}, 0), HasSubstr("overflows"));
  EXPECT_THAT(error_of([] { VirtualTopology(1, std::vector<std::int64_t>{0}); }),
              HasSubstr("at least 1 worker, found 0"));
  const VirtualTopology topology(6, {{{0}, 0}}, 10);
  EXPECT_THAT(error_of([&] { topology.progress(9); }), HasSubstr("before the first step"));
  EXPECT_THAT(error_of([&] { topology.parts(10, 0, 4); }),
              HasSubstr("global batch of 6 samples (1 ranks of 6) can't be shared by 4"));
  EXPECT_THAT(error_of([&] { topology.parts(10, 2, 2); }),
              HasSubstr("Invalid distributed rank/world size: rank 2 of 2"));
}

}  // namespace
}  // namespace lerobot::streaming
