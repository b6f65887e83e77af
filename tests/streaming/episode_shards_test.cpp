#include "lerobot/streaming/episode_shards.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "tests/support/error_of.h"

namespace lerobot::streaming {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

EpisodeList episodes_of(const std::vector<std::int32_t>& frames) {
  EpisodeList list{std::vector<std::int64_t>(frames.size()), frames};
  std::iota(list.episodes.begin(), list.episodes.end(), 0);
  return list;
}

TEST(EpisodeShards, OwnersAreThoseOfThePlainRule) {
  const Json oracle =
      read_json_file(LEROBOT_TEST_DATA "/oracles/streaming_order/shards.json")["cases"];
  ASSERT_GE(oracle.size(), 30u);
  for (const Json& c : oracle) {
    const EpisodeList all = episodes_of(c["frames"].get<std::vector<std::int32_t>>());
    std::vector<EpisodeList> expected(c["bins"].get<std::size_t>());
    for (std::size_t i = 0; i < all.episodes.size(); ++i) {
      auto& owner = expected[c["bin"][i].get<std::size_t>()];
      owner.episodes.push_back(all.episodes[i]);
      owner.frames.push_back(all.frames[i]);
    }
    EXPECT_EQ(deal_episodes(all, c["bins"].get<std::int64_t>()), expected) << c.dump();
  }
}

TEST(EpisodeShards, RanksAndLanesTogetherOwnTheSelectionOnceAndBalanced) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = 1 + random() % 60;
    EpisodeList all;
    for (std::size_t i = 0; i < count; ++i) {
      all.episodes.push_back(static_cast<std::int64_t>(3 * i + random() % 3));
      all.frames.push_back(static_cast<std::int32_t>(1 + random() % (1 + random() % 300)));
    }
    const auto world = static_cast<std::int64_t>(1 + random() % std::min<std::size_t>(count, 8));
    const auto workers = static_cast<std::int64_t>(random() % 9);
    std::map<std::int64_t, std::int32_t> owned;
    std::int64_t least = all.total_frames(), most = 0;
    for (const EpisodeList& rank : rank_shards(all, world)) {
      least = std::min(least, rank.total_frames());
      most = std::max(most, rank.total_frames());
      const auto lanes = lane_shards(rank, workers);
      ASSERT_EQ(static_cast<std::int64_t>(lanes.size()), lane_count(workers, rank.size()));
      for (const EpisodeList& lane : lanes) {
        ASSERT_GT(lane.size(), 0);
        ASSERT_TRUE(std::ranges::is_sorted(lane.episodes));
        for (std::size_t i = 0; i < lane.episodes.size(); ++i)
          ASSERT_TRUE(owned.emplace(lane.episodes[i], lane.frames[i]).second);
      }
    }
    ASSERT_EQ(owned.size(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(owned.at(all.episodes[i]), all.frames[i]);
    ASSERT_LE(most - least, *std::ranges::max_element(all.frames));
  }
}

TEST(EpisodeShards, EpisodesWithoutFramesBelongToNobody) {
  const auto shards = deal_episodes(episodes_of({0, 4, 0, 4}), 2);
  EXPECT_THAT(shards[0].episodes, ElementsAre(1));
  EXPECT_THAT(shards[1].episodes, ElementsAre(3));
}

TEST(EpisodeShards, ARankWithoutEpisodesIsToldToLowerTheWorldSize) {
  const auto message = error_of([] { rank_shards(episodes_of({5, 0, 7}), 3); });
  EXPECT_THAT(message, HasSubstr("rank 2 owns no streaming episodes: 2 episodes with frames are "
                                 "selected for 3 data-parallel ranks"));
  EXPECT_THAT(message, HasSubstr("reduce the data-parallel world size to at most 2"));
  EXPECT_THAT(error_of([] {
                rank_shards(episodes_of({0, 0}), 3);
              }),
              HasSubstr("no frame to stream: 2 episodes are selected"));
  EXPECT_THAT(error_of([] { lane_shards(EpisodeList{}, 1); }), HasSubstr("owns no streaming"));
}

TEST(EpisodeShards, BadInputIsRefused) {
  const auto deal = [](EpisodeList list, std::int64_t owners) {
    return error_of([&] { deal_episodes(list, owners); });
  };
  EXPECT_THAT(deal({{0, 1}, {1}}, 1), HasSubstr("2 episodes, but 1 episode lengths"));
  EXPECT_THAT(deal({{1, 0}, {1, 1}}, 1), HasSubstr("must ascend, found 0 after 1"));
  EXPECT_THAT(deal({{0}, {-1}}, 1), HasSubstr("length of episode 0"));
  EXPECT_THAT(deal({{0}, {1}}, 0), HasSubstr("must be positive, found 0"));
}

TEST(EpisodeShards, ALaneGetsItsPartOfTheRanksLimits) {
  EXPECT_EQ(lane_count(0, 9), 1);
  EXPECT_EQ(lane_count(4, 9), 4);
  EXPECT_EQ(lane_count(12, 9), 9);
  // max(1, round(32 / N)) in Python, which rounds half to even.
  const std::int64_t pools[] = {32, 16, 11, 8, 6, 5, 5, 4, 4, 3, 3, 3, 2, 2, 2, 2};
  for (std::int64_t lanes = 1; lanes <= 16; ++lanes)
    EXPECT_EQ(lane_pool_size(std::nullopt, lanes), pools[lanes - 1]) << lanes;
  EXPECT_EQ(lane_pool_size(std::nullopt, 21), 2);
  EXPECT_EQ(lane_pool_size(std::nullopt, 64), 1);  // round(0.5) is 0.
  EXPECT_EQ(lane_pool_size(std::nullopt, 1000), 1);
  EXPECT_EQ(lane_pool_size(7, 4), 7);
  EXPECT_EQ(lane_byte_budget(std::uint64_t{8} << 30, 3), 2863311530u);
  EXPECT_EQ(lane_byte_budget(2, 3), 1u);
}

}  // namespace
}  // namespace lerobot::streaming
