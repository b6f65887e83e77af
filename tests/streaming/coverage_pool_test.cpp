#include "lerobot/streaming/coverage_pool.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
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
using ::testing::IsEmpty;
using Episodes = std::vector<std::int64_t>;
using Lengths = std::vector<std::int32_t>;
using Sizes = std::vector<std::uint64_t>;

constexpr auto kRemaining = SamplingStrategy::kRemaining;
constexpr auto kRoundRobin = SamplingStrategy::kRoundRobin;
const std::string kOracles = LEROBOT_TEST_DATA "/oracles/streaming_order/";

Episodes first_episodes(std::size_t count) {
  Episodes episodes(count);
  std::iota(episodes.begin(), episodes.end(), 0);
  return episodes;
}

/// A pool over episodes 0, 1, 2, ...
CoveragePool make_pool(const Lengths& frames, const Sizes& sizes, CoveragePoolOptions options) {
  return {first_episodes(frames.size()), frames,
          [sizes](std::int64_t episode) { return sizes.at(static_cast<std::size_t>(episode)); },
          options};
}

CoveragePool make_pool(const Lengths& frames, CoveragePoolOptions options) {
  return make_pool(frames, Sizes(frames.size(), 1), options);
}

std::vector<Anchor> draw(CoveragePool& pool, std::int64_t count) {
  std::vector<Anchor> anchors;
  for (std::int64_t i = 0; i < count; ++i) anchors.push_back(pool.next());
  return anchors;
}

// --- The order is LeRobot's ---------------------------------------------------------------------

std::string epoch_text(CoveragePool& pool, std::int64_t epoch) {
  pool.skip(epoch * pool.frames_per_epoch());
  std::string text;
  for (const Anchor& anchor : draw(pool, pool.frames_per_epoch())) {
    EXPECT_EQ(anchor.epoch, epoch);
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", anchor.episode, anchor.frame);
  }
  return text;
}

TEST(CoveragePool, OrdersAreThoseOfTheReferenceVectors) {
  const Lengths frames{5, 3, 8, 1, 6};
  struct Case {
    SamplingStrategy strategy;
    std::uint64_t seed;
    std::int64_t epoch;
    const char* order;
  };
  const Case cases[] = {
      {kRemaining, 42, 0,
       "2:5 4:4 2:4 2:7 2:1 4:2 4:1 3:0 2:3 1:2 2:0 2:6 4:5 4:3 4:0 1:1 0:3 2:2 0:4 0:2 0:0 1:0 "
       "0:1"},
      {kRemaining, 1000, 0,
       "1:1 2:2 2:3 2:7 1:0 2:5 2:0 1:2 4:4 2:4 4:3 4:0 4:1 4:5 3:0 4:2 0:3 0:0 0:4 2:6 2:1 0:2 "
       "0:1"},
      {kRemaining, 1000, 1,
       "2:2 1:0 1:2 2:1 2:5 2:3 0:4 0:3 2:6 2:0 2:7 1:1 3:0 0:2 0:0 4:2 2:4 4:0 4:3 4:5 4:1 4:4 "
       "0:1"},
      {kRoundRobin, 42, 0,
       "3:0 4:4 2:5 1:1 4:2 2:4 2:7 4:1 1:2 2:1 1:0 4:5 0:2 4:3 2:3 4:0 0:4 2:0 0:3 2:6 0:0 2:2 "
       "0:1"},
      {kRoundRobin, 1000, 0,
       "2:2 1:1 3:0 1:0 4:0 2:3 2:7 1:2 4:1 2:5 4:5 0:4 4:3 2:0 0:1 0:2 2:4 4:4 0:3 4:2 2:6 2:1 "
       "0:0"},
      {kRoundRobin, 1000, 1,
       "2:2 1:0 0:4 0:3 1:2 2:1 1:1 0:2 2:5 0:0 3:0 2:3 4:4 2:6 0:1 4:1 2:0 2:7 4:5 4:2 2:4 4:0 "
       "4:3"},
  };
  for (const Case& c : cases) {
    auto pool = make_pool(frames, {3, 1000, c.strategy, c.seed});
    EXPECT_EQ(epoch_text(pool, c.epoch), c.order);
  }
  auto pool = make_pool(frames, {50, 30, 80, 10, 60}, {3, 120, kRemaining, 42});
  EXPECT_EQ(epoch_text(pool, 0),
            "1:1 3:0 1:0 4:4 4:2 4:1 4:5 1:2 0:1 0:4 0:2 0:0 4:3 4:0 0:3 2:6 2:2 2:3 2:5 2:7 2:0 "
            "2:4 2:1");
}

TEST(CoveragePool, OrderOfARealDatasetIsLeRobots) {
  for (const char* name : {"toy_h264_stream_w0.json", "toy_h264_stream_w1.json"}) {
    const Json oracle = read_json_file(kOracles + name);
    CoveragePoolOptions options;
    options.pool_size = oracle["effective_pool_per_worker"].get<std::int64_t>();
    options.byte_budget = std::uint64_t{8} << 30;
    options.seed = oracle["seed"].get<std::uint64_t>();
    auto pool = make_pool({12, 9, 15, 7}, options);
    ASSERT_EQ(oracle["first_pairs"].size(), 64u);  // into the second epoch
    for (const Json& pair : oracle["first_pairs"]) {
      const Anchor anchor = pool.next();
      EXPECT_EQ(anchor.episode, pair[0].get<std::int64_t>());
      EXPECT_EQ(anchor.frame, pair[1].get<std::int64_t>());
    }
  }
}

TEST(CoveragePool, OrdersOfRandomShapesAreThoseOfThePlainRulesWithNumpy) {
  const Json oracle = read_json_file(kOracles + "pools.json");
  ASSERT_GE(oracle["cases"].size(), 50u);
  for (const Json& c : oracle["cases"]) {
    CoveragePoolOptions options;
    options.pool_size = c["pool_size"].get<std::int64_t>();
    options.byte_budget = c["byte_budget"].get<std::uint64_t>();
    options.strategy = c["strategy"] == "remaining" ? kRemaining : kRoundRobin;
    options.seed = c["seed"].get<std::uint64_t>();
    auto pool = make_pool(c["frames"].get<Lengths>(), c["sizes"].get<Sizes>(), options);
    pool.skip(c["epoch"].get<std::int64_t>() * pool.frames_per_epoch());
    Episodes episodes, frames;
    for (const Anchor& anchor : draw(pool, pool.frames_per_epoch())) {
      episodes.push_back(anchor.episode);
      frames.push_back(anchor.frame);
    }
    EXPECT_EQ(episodes, c["episodes"].get<Episodes>()) << c["frames"].dump();
    EXPECT_EQ(frames, c["order"].get<Episodes>()) << c["frames"].dump();
  }
}

// --- What holds for every shape -----------------------------------------------------------------

struct Shape {
  Episodes episodes;  // with gaps between the numbers
  Lengths frames;
  std::map<std::int64_t, std::uint64_t> sizes;
  CoveragePoolOptions options;
  std::uint64_t all_bytes = 0;
};

Shape random_shape(std::mt19937_64& random) {
  const auto up_to = [&](std::uint64_t largest) { return random() % (largest + 1); };
  Shape shape;
  const std::uint64_t count = 1 + up_to(up_to(3) == 0 ? 200 : 12);
  const std::uint64_t longest = 1 + up_to(up_to(1) == 0 ? 0 : 30);
  std::uint64_t largest = 0;
  for (std::uint64_t i = 0, number = up_to(5); i < count; ++i, number += 1 + up_to(3)) {
    const std::uint64_t frames = i == 0 ? longest : up_to(9) == 0 ? 0 : 1 + up_to(longest - 1);
    const std::uint64_t bytes = up_to(5) == 0 ? 0 : frames * (1 + up_to(20));
    shape.episodes.push_back(static_cast<std::int64_t>(number));
    shape.frames.push_back(static_cast<std::int32_t>(frames));
    shape.sizes[shape.episodes.back()] = bytes;
    largest = std::max(largest, bytes);
    shape.all_bytes += bytes;
  }
  shape.options.pool_size = static_cast<std::int64_t>(1 + up_to(39));
  shape.options.byte_budget = std::max<std::uint64_t>(
      1, up_to(2) == 0 ? shape.all_bytes : largest + up_to(largest * up_to(4)));
  shape.options.strategy = up_to(1) == 0 ? kRemaining : kRoundRobin;
  shape.options.seed = random();
  return shape;
}

CoveragePool make_pool(const Shape& shape) {
  return {shape.episodes, shape.frames, [sizes = shape.sizes](auto e) { return sizes.at(e); },
          shape.options};
}

TEST(CoveragePool, EveryFrameComesOnceAnEpochAndTheResidentsKeepTheirLimits) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    const Shape shape = random_shape(random);
    auto pool = make_pool(shape);
    std::map<std::int64_t, std::uint64_t> followed;  // residents, as the changes tell
    std::uint64_t bytes = 0;
    const auto follow = [&] {
      for (const auto& change : pool.take_changes()) {
        ASSERT_EQ(change.bytes, shape.sizes.at(change.episode));
        if (change.admitted) {
          ASSERT_TRUE(followed.emplace(change.episode, change.bytes).second);
          bytes += change.bytes;
        } else {
          ASSERT_EQ(followed.erase(change.episode), 1u);
          bytes -= change.bytes;
        }
        ASSERT_LE(bytes, shape.options.byte_budget);
        ASSERT_LE(followed.size(), static_cast<std::size_t>(shape.options.pool_size));
      }
      ASSERT_EQ(pool.resident_bytes(), bytes);
    };
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      std::set<std::pair<std::int64_t, std::int64_t>> drawn;
      for (std::int64_t position = 0; position < pool.frames_per_epoch(); ++position) {
        ASSERT_EQ(pool.epoch(), epoch);
        ASSERT_EQ(pool.position(), position);
        follow();
        const Anchor anchor = pool.next();
        ASSERT_EQ(anchor.epoch, epoch);
        ASSERT_EQ(anchor.position, position);
        ASSERT_TRUE(followed.contains(anchor.episode));
        drawn.emplace(anchor.episode, anchor.frame);
      }
      std::set<std::pair<std::int64_t, std::int64_t>> all;
      for (std::size_t i = 0; i < shape.episodes.size(); ++i)
        for (std::int64_t frame = 0; frame < shape.frames[i]; ++frame)
          all.emplace(shape.episodes[i], frame);
      ASSERT_EQ(drawn, all);
    }
  }
}

TEST(CoveragePool, SkippingIsTheSameAsDrawing) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000; ++round) {
    const Shape shape = random_shape(random);
    auto drawn = make_pool(shape), skipped = make_pool(shape);
    std::set<std::int64_t> followed;
    for (int hop = 0; hop < 4; ++hop) {
      const auto before = static_cast<std::int64_t>(random() % 4);
      const auto count = static_cast<std::int64_t>(
          random() % static_cast<std::uint64_t>(3 * drawn.frames_per_epoch()));
      draw(drawn, before + count);
      draw(skipped, before);
      skipped.skip(count);
      ASSERT_EQ(skipped.residents(), drawn.residents());
      ASSERT_EQ(skipped.upcoming(7), drawn.upcoming(7));
      for (const auto& change : skipped.take_changes())
        ASSERT_EQ(change.admitted ? followed.insert(change.episode).second
                                  : followed.erase(change.episode) == 1,
                  true);
      const auto residents = skipped.residents();
      ASSERT_EQ(followed, std::set<std::int64_t>(residents.begin(), residents.end()));
      const Anchor expected = drawn.next();
      ASSERT_EQ(skipped.next(), expected);
      for (const auto& change : skipped.take_changes())
        change.admitted ? static_cast<void>(followed.insert(change.episode))
                        : static_cast<void>(followed.erase(change.episode));
    }
  }
}

TEST(CoveragePool, ABudgetThatDoesNotBindHasNoSayInTheOrder) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    Shape shape = random_shape(random);
    shape.options.byte_budget = shape.all_bytes + 1;
    auto pool = make_pool(shape);
    shape.options.byte_budget = ~std::uint64_t{0};
    auto unlimited = make_pool(shape);
    const std::int64_t count = 2 * pool.frames_per_epoch();
    ASSERT_EQ(draw(pool, count), draw(unlimited, count));
  }
}

// --- Changes, frontier, cost --------------------------------------------------------------------

TEST(CoveragePool, AnEpisodeThatEndsAnEpochLeavesAndIsAdmittedAgain) {
  auto pool = make_pool({2}, {1, 10, kRemaining, 1});
  EXPECT_THAT(pool.residents(), ElementsAre(0));
  auto changes = pool.take_changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].admitted);
  pool.next();
  EXPECT_THAT(pool.take_changes(), IsEmpty());
  pool.next();
  changes = pool.take_changes();
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_FALSE(changes[0].admitted);
  EXPECT_TRUE(changes[1].admitted);
  EXPECT_EQ(pool.epoch(), 1);
  EXPECT_EQ(pool.position(), 0);
}

TEST(CoveragePool, UpcomingEpisodesAreTheNextAdmissionsAndGoOnIntoTheNextEpoch) {
  const CoveragePoolOptions options{3, 1000, kRemaining, 42};
  auto pool = make_pool({5, 3, 8, 1, 6}, options);
  EXPECT_THAT(pool.residents(), ElementsAre(4, 2, 3));
  EXPECT_THAT(pool.upcoming(1), ElementsAre(1));
  EXPECT_THAT(pool.upcoming(5), ElementsAre(1, 0));
  EXPECT_THAT(pool.upcoming(0), IsEmpty());
  std::mt19937_64 random(4);
  for (int round = 0; round < 200; ++round) {
    Shape shape = random_shape(random);
    shape.options.byte_budget = shape.all_bytes + 1;  // Nobody overtakes.
    auto random_pool = make_pool(shape);
    random_pool.take_changes();
    for (std::int64_t i = 0; i < random_pool.frames_per_epoch(); ++i) {
      const std::int64_t epoch = random_pool.epoch();
      const auto upcoming = random_pool.upcoming(5);
      const Anchor anchor = random_pool.next();
      Episodes admitted;
      for (const auto& change : random_pool.take_changes())
        if (change.admitted) admitted.push_back(change.episode);
      // The episode that ended the epoch was resident, hence not upcoming.
      if (random_pool.epoch() != epoch) std::erase(admitted, anchor.episode);
      const auto common = static_cast<std::ptrdiff_t>(std::min(admitted.size(), upcoming.size()));
      ASSERT_TRUE(std::equal(admitted.begin(), admitted.begin() + common, upcoming.begin()));
    }
  }
}

TEST(CoveragePool, SizesAreAskedOncePerAdmissionUnlessTheBudgetBinds) {
  std::int64_t asked = 0;
  CoveragePool pool(first_episodes(1000), Lengths(1000, 50),
                    [&](std::int64_t) {
                      ++asked;
                      return std::uint64_t{1};
                    },
                    {32, 100, kRemaining, 7});
  EXPECT_EQ(asked, 32);
  pool.skip(3'000'000'000LL * 1000 * 50 + 25'000);
  EXPECT_EQ(pool.epoch(), 3'000'000'000LL);
  EXPECT_EQ(pool.position(), 25'000);
  EXPECT_LT(asked, 32 + 1000);
}

TEST(CoveragePool, AFullBudgetDoesNotMeanALookAtEveryEpisodeAfterEveryDeparture) {
  constexpr std::int64_t kEpisodes = 50'000;
  std::int64_t asked = 0;
  CoveragePool pool(first_episodes(kEpisodes), Lengths(kEpisodes, 2),
                    [&](std::int64_t episode) {
                      ++asked;
                      return static_cast<std::uint64_t>(100 + episode % 17);
                    },
                    {32, 450, kRemaining, 7});
  std::set<std::pair<std::int64_t, std::int64_t>> drawn;
  for (std::int64_t i = 0; i < pool.frames_per_epoch() - 1; ++i) {
    const Anchor anchor = pool.next();
    drawn.emplace(anchor.episode, anchor.frame);
    if (i % 100 == 0) {
      EXPECT_LE(pool.upcoming(8).size(), 8u);
    }
  }
  EXPECT_EQ(drawn.size(), 2u * kEpisodes - 1);
  EXPECT_EQ(asked, kEpisodes);
}

// --- Refusals -----------------------------------------------------------------------------------

TEST(CoveragePool, AnEpisodeLargerThanTheBudgetIsNamedWithWhatHelps) {
  const auto message = error_of([] { make_pool({5, 3}, {50, 500}, {3, 120, kRemaining, 42}); });
  EXPECT_THAT(message, HasSubstr("Episode 1 requires 500 bytes, exceeding the byte budget 120"));
  EXPECT_THAT(message, HasSubstr("--dataset.streaming_byte_budget_gb"));
  EXPECT_THAT(message, HasSubstr("--num_workers"));
}

TEST(CoveragePool, TheBudgetIsCheckedUpFrontAndExactlyOnlyWhereTheBoundExceedsIt) {
  const Episodes episodes{1, 4, 9};
  Episodes asked;
  const auto bound = [](std::int64_t episode) { return static_cast<std::uint64_t>(episode * 100); };
  const auto size = [&](std::int64_t episode) {
    asked.push_back(episode);
    return bound(episode) - 50;
  };
  EXPECT_NO_THROW(require_fit_budget(episodes, bound, size, 850));
  EXPECT_THAT(asked, ElementsAre(9));
  EXPECT_THAT(error_of([&] { require_fit_budget(episodes, bound, size, 849); }),
              HasSubstr("Episode 9 requires 850 bytes, exceeding the byte budget 849"));
}

TEST(CoveragePool, BadInputIsRefused) {
  const CoveragePoolOptions good{3, 100, kRemaining, 1};
  const auto pool = [](Episodes episodes, Lengths frames, CoveragePoolOptions options) {
    return error_of([&] {
      CoveragePool(
          episodes, frames, [](std::int64_t) { return std::uint64_t{1}; }, options);
    });
  };
  EXPECT_EQ(pool({0, 1}, {1, 2}, good), "no error");
  EXPECT_THAT(pool({}, {}, good), HasSubstr("no frame to stream"));
  EXPECT_THAT(pool({0, 1}, {0, 0}, good), HasSubstr("no frame to stream"));
  EXPECT_THAT(pool({0, 1}, {1}, good), HasSubstr("2 episodes, but 1 episode lengths"));
  EXPECT_THAT(pool({1, 0}, {1, 1}, good), HasSubstr("must ascend, found 0 after 1"));
  EXPECT_THAT(pool({1, 1}, {1, 1}, good), HasSubstr("must ascend"));
  EXPECT_THAT(pool({3, 4}, {1, -2}, good), HasSubstr("length of episode 4"));
  EXPECT_THAT(pool({std::int64_t{1} << 31}, {1}, good), HasSubstr("number of an episode"));
  EXPECT_THAT(pool({0}, {1}, {0, 100, kRemaining, 1}), HasSubstr("streaming_episode_pool_size"));
  EXPECT_THAT(pool({0}, {1}, {1, 0, kRemaining, 1}), HasSubstr("streaming_byte_budget_gb"));
  EXPECT_THAT(error_of([&] { make_pool({1}, good).skip(-1); }), HasSubstr("must not be negative"));
}

}  // namespace
}  // namespace lerobot::streaming
