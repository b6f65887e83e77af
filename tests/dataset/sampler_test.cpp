#include "lerobot/dataset/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "tests/support/error_of.h"

namespace lerobot::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Frames = std::vector<std::int64_t>;

const Frames kFrom{0, 12, 21, 36};
const Frames kTo{12, 21, 36, 43};

std::string message_of(const Frames& from, const Frames& to, SamplerOptions options) {
  return error_of([&] { EpisodeAwareSampler sampler(from, to, std::move(options)); });
}

TEST(Sampler, OrdersAreThoseOfLeRobot) {
  const Json oracle = read_json_file(LEROBOT_TEST_DATA "/oracles/sampler_oracle.json");
  ASSERT_FALSE(oracle["samplers"].empty());
  for (const Json& c : oracle["samplers"]) {
    const auto from = c["from"].get<Frames>(), to = c["to"].get<Frames>();
    SamplerOptions options;
    options.drop_last = c["drop_n_last_frames"].get<std::int64_t>();
    options.seed = c["seed"].get<std::uint64_t>();
    if (!c["episodes"].is_null()) {
      options.episodes = c["episodes"].get<Frames>();
      // A subset is loaded in file order: its rows are numbered from 0.
      Frames first_row(from.size(), -1);
      std::int64_t row = 0;
      for (std::size_t i = 0; i < from.size(); ++i) {
        const auto& chosen = *options.episodes;
        if (std::find(chosen.begin(), chosen.end(), static_cast<std::int64_t>(i)) == chosen.end())
          continue;
        first_row[i] = row;
        row += to[i] - from[i];
      }
      options.first_row = first_row;
    }
    const EpisodeAwareSampler sampler(from, to, options);
    EXPECT_EQ(sampler.size(), c["len"].get<std::int64_t>());
    for (std::size_t epoch = 0; epoch < c["epochs"].size(); ++epoch)
      EXPECT_EQ(sampler.order(epoch), c["epochs"][epoch].get<Frames>()) << c.dump();
  }
}

TEST(Sampler, AnyEpochIsReachedDirectlyAndTwiceTheSame) {
  const EpisodeAwareSampler sampler(kFrom, kTo, {.seed = 1000});
  const Frames third = sampler.order(3);
  sampler.order(0);
  EXPECT_EQ(sampler.order(3), third);
  EXPECT_NE(sampler.order(4), third);
}

TEST(Sampler, SelectionOrderAndRepetitionsHaveNoEffect) {
  const EpisodeAwareSampler a(kFrom, kTo, {.episodes = Frames{3, 1, 1}, .seed = 7});
  const EpisodeAwareSampler b(kFrom, kTo, {.episodes = Frames{1, 3}, .seed = 7});
  EXPECT_EQ(a.order(5), b.order(5));
  EXPECT_EQ(a.size(), 16);
}

TEST(Sampler, DroppedFramesAreLeftOutAtBothEnds) {
  const EpisodeAwareSampler sampler(kFrom, kTo,
                                    {.episodes = Frames{0, 3}, .drop_first = 2, .drop_last = 3});
  EXPECT_THAT(sampler.sequential_order(), ElementsAre(2, 3, 4, 5, 6, 7, 8, 38, 39));
}

TEST(Sampler, EpisodesThatAreTooShortAreSkippedWithAWarning) {
  ::testing::internal::CaptureStderr();
  const EpisodeAwareSampler sampler(kFrom, kTo, {.drop_last = 7});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("Episode 3 has 7 frames"));
  EXPECT_EQ(sampler.size(), 5 + 2 + 8);
}

TEST(Sampler, WithoutShufflingEveryEpochIsTheDatasetsOrder) {
  const EpisodeAwareSampler sampler(kFrom, kTo, {.shuffle = false});
  Frames all(43);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sampler.order(0), all);
  EXPECT_EQ(sampler.order(9), all);
  EXPECT_FALSE(sampler.shuffles());
}

TEST(Sampler, BadInputIsRefusedWithTheNumbers) {
  EXPECT_THAT(message_of(kFrom, kTo, {.drop_first = -1}), HasSubstr("-1"));
  EXPECT_THAT(message_of(kFrom, kTo, {.drop_last = -2}), HasSubstr("-2"));
  EXPECT_THAT(message_of(kFrom, {12, 21}, {}), HasSubstr("4 and 2"));
  EXPECT_THAT(message_of(kFrom, kTo, {.first_row = Frames{0}}), HasSubstr("must be 4, found 1"));
  EXPECT_THAT(message_of(kFrom, kTo, {.episodes = Frames{4}}),
              HasSubstr("episode 4 was selected, but the dataset has episodes 0 to 3"));
  EXPECT_THAT(message_of(kFrom, kTo, {.episodes = Frames{-1}}), HasSubstr("episode -1"));
  EXPECT_THAT(message_of(kFrom, kTo, {.drop_first = 8, .drop_last = 7}),
              HasSubstr("no frame is left"));
  EXPECT_THAT(message_of(kFrom, kTo, {.episodes = Frames{}}), HasSubstr("no frame is left"));
  EXPECT_THAT(message_of(kFrom, kTo,
                         {.drop_first = std::numeric_limits<std::int64_t>::max(),
                          .drop_last = std::numeric_limits<std::int64_t>::max()}),
              HasSubstr("no frame is left"));
}

}  // namespace
}  // namespace lerobot::dataset
