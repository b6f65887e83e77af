#include "lerobot/dataset/batch_sharding.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/dataset/sampler.h"

namespace lerobot::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Frames = std::vector<std::int64_t>;

Frames pick(const Frames& order, const Frames& positions) {
  Frames frames;
  for (std::int64_t position : positions)
    frames.push_back(order.at(static_cast<std::size_t>(position)));
  return frames;
}

TEST(BatchSharding, EveryRankGetsTheBatchesThatAccelerateGivesIt) {
  // 43 frames, seed 1000, epoch 0.
  const Frames from{0, 12, 21, 36}, to{12, 21, 36, 43};
  const Frames order = EpisodeAwareSampler(from, to, {.seed = 1000}).order(0);
  const Json oracle = read_json_file(LEROBOT_TEST_DATA "/oracles/batch_shard_oracle.json");
  ASSERT_FALSE(oracle.empty());
  for (const Json& c : oracle) {
    const auto batch_size = c["batch_size"].get<std::int64_t>();
    const auto world = c["world"].get<std::int64_t>();
    for (std::int64_t rank = 0; rank < world; ++rank) {
      const BatchSharder sharder(43, batch_size, world, rank);
      const Json& expected = c["ranks"][static_cast<std::size_t>(rank)];
      ASSERT_EQ(sharder.batches_per_epoch(), static_cast<std::int64_t>(expected.size()));
      for (std::size_t j = 0; j < expected.size(); ++j)
        EXPECT_EQ(pick(order, sharder.positions(static_cast<std::int64_t>(j))),
                  expected[j].get<Frames>())
            << "batch size " << batch_size << ", world " << world << ", rank " << rank;
    }
  }
}

TEST(BatchSharding, FillerRepeatsADatasetThatIsSmallerThanOneStep) {
  // 3 samples, 2 ranks of 4.
  EXPECT_THAT(BatchSharder(3, 4, 2, 0).positions(0), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(BatchSharder(3, 4, 2, 1).positions(0), ElementsAre(1, 2, 0, 1));
}

TEST(BatchSharding, AStepCoversTheSamePositionsHoweverManyRanksShareThem) {
  for (const std::int64_t samples : {1, 5, 12, 43, 100})
    for (const std::int64_t first : {std::int64_t{0}, samples / 2}) {
      std::vector<Frames> reference;
      for (const std::int64_t world : {2, 1, 3, 4, 12}) {
        std::vector<Frames> steps;
        for (std::int64_t rank = 0; rank < world; ++rank) {
          const BatchSharder sharder(samples, 12 / world, world, rank, first, true);
          steps.resize(static_cast<std::size_t>(sharder.batches_per_epoch()));
          for (std::size_t step = 0; step < steps.size(); ++step)
            for (const std::int64_t at : sharder.positions(static_cast<std::int64_t>(step)))
              steps[step].push_back(at);
        }
        if (reference.empty()) reference = steps;
        EXPECT_EQ(steps, reference) << samples << " samples from " << first << ", world " << world;
      }
    }
}

TEST(BatchSharding, PositionsAfterAStepAreThoseOfLeRobot) {
  const Json oracle = read_json_file(LEROBOT_TEST_DATA "/oracles/sampler_oracle.json");
  ASSERT_FALSE(oracle["resume"].empty());
  for (const Json& c : oracle["resume"]) {
    const EpochPosition position =
        position_after(c["step"].get<std::int64_t>(), c["num_frames"].get<std::int64_t>(),
                       c["batch_size"].get<std::int64_t>(), c["num_processes"].get<std::int64_t>());
    EXPECT_EQ(position.epoch, c["epoch"].get<std::int64_t>()) << c.dump();
    EXPECT_EQ(position.sample, c["start_index"].get<std::int64_t>()) << c.dump();
  }
}

// LeRobot 0.6 reads epoch 0's order again, and takes the filler from the resume point.
TEST(BatchSharding, AResumedRunContinuesTheUninterruptedOneInAnyEpoch) {
  const Frames from{0, 12, 21, 36}, to{12, 21, 36, 43};
  const EpisodeAwareSampler sampler(from, to, {.seed = 1000});
  const std::int64_t batch_size = 4, world = 2;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const BatchSharder sharder(sampler.size(), batch_size, world, rank);
    std::vector<Frames> uninterrupted;
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
      for (std::int64_t j = 0; j < sharder.batches_per_epoch(); ++j)
        uninterrupted.push_back(pick(sampler.order(epoch), sharder.positions(j)));
    for (std::size_t step = 0; step < uninterrupted.size(); ++step) {
      const EpochPosition at =
          position_after(static_cast<std::int64_t>(step), sampler.size(), batch_size, world);
      EXPECT_EQ(
          pick(sampler.order(static_cast<std::uint64_t>(at.epoch)), sharder.positions(at.batch)),
          uninterrupted[step]);
    }
  }
}

TEST(BatchSharding, BadInputIsRefusedWithTheNumbers) {
  const auto message = [](auto&& make) -> std::string {
    try {
      make();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message([] { BatchSharder(0, 4); }), HasSubstr("at least one sample, found 0"));
  EXPECT_THAT(message([] { BatchSharder(5, 0); }), HasSubstr("batch size must be positive"));
  EXPECT_THAT(message([] { BatchSharder(5, 4, 0); }), HasSubstr("positive, found 0"));
  EXPECT_THAT(message([] { BatchSharder(5, 4, 2, 2); }), HasSubstr("between 0 and 1, found 2"));
  EXPECT_THAT(message([] { BatchSharder(5, 4, 1, 0, 5); }), HasSubstr("between 0 and 4, found 5"));
  EXPECT_THAT(message([] { position_after(-1, 5, 4, 2); }), HasSubstr("negative, found -1"));
  EXPECT_THAT(message([] { BatchSharder(5, std::numeric_limits<std::int64_t>::max(), 2); }),
              HasSubstr("overflows"));
}

}  // namespace
}  // namespace lerobot::dataset
