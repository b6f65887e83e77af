#include "lerobot/dataset/episode_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/dataset/metadata.h"
#include "tests/dataset/dataset_fixture.h"

namespace lerobot::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Episodes = std::vector<std::int64_t>;

TEST(EpisodeSelection, KeepsTheOrderOfTheListAndDropsNumbersBeyondTheEnd) {
  EXPECT_THAT(select_episodes(4, std::nullopt, std::nullopt), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(select_episodes(4, Episodes{2, 0, 9}, std::nullopt), ElementsAre(2, 0));
  EXPECT_THAT(select_episodes(4, std::nullopt, Episodes{1, 7}), ElementsAre(0, 2, 3));
  EXPECT_THAT(select_episodes(4, Episodes{3, 1, 2}, Episodes{1}), ElementsAre(3, 2));
  EXPECT_THAT(select_episodes(2, std::nullopt, Episodes{}), ElementsAre(0, 1));
}

TEST(EpisodeSelection, RefusesListsThatMakeNoSense) {
  const auto error = [](std::optional<Episodes> allow, std::optional<Episodes> exclude) {
    return error_of([&] { select_episodes(4, allow, exclude); });
  };
  EXPECT_THAT(error(Episodes{}, std::nullopt),
              AllOf(HasSubstr("dataset.episodes"), HasSubstr("empty list")));
  EXPECT_THAT(error(Episodes{-1}, std::nullopt), HasSubstr("-1"));
  EXPECT_THAT(error(Episodes{1, 2, 1}, std::nullopt), HasSubstr("episode 1 is listed twice"));
  EXPECT_THAT(error(std::nullopt, Episodes{-2}),
              AllOf(HasSubstr("dataset.exclude_episodes"), HasSubstr("-2")));
  EXPECT_THAT(error(Episodes{9}, std::nullopt), HasSubstr("leave none of the dataset's 4"));
  EXPECT_THAT(error(std::nullopt, Episodes{0, 1, 2, 3}), HasSubstr("leave none"));
}

TEST(EvalSplit, HoldsOutTheLastEpisodesOfEachTask) {
  // Tasks of toy_h264: pick = {0, 1, 3}, place = {2}; the expected split was observed on LeRobot.
  const auto metadata = DatasetMetadata::open(fixture("toy_h264"), "toy/h264");
  const EpisodeSplit split = split_episodes(metadata->episodes(), {0, 1, 2, 3}, 0.3);
  EXPECT_THAT(split.train, ElementsAre(0, 1));
  EXPECT_THAT(split.eval, ElementsAre(3, 2));

  const EpisodeSplit reordered = split_episodes(metadata->episodes(), {3, 1, 0}, 0.5);
  EXPECT_THAT(reordered.train, ElementsAre(3));
  EXPECT_THAT(reordered.eval, ElementsAre(1, 0));

  const EpisodeSplit none = split_episodes(metadata->episodes(), {2, 0}, 0.0);
  EXPECT_THAT(none.train, ElementsAre(2, 0));
  EXPECT_THAT(none.eval, IsEmpty());
}

TEST(EvalSplit, RefusesToLeaveNoTrainingEpisode) {
  const auto metadata = DatasetMetadata::open(fixture("toy_h264"), "toy/h264");
  EXPECT_THAT(error_of([&] {
                split_episodes(metadata->episodes(), {0, 2}, 0.5);
              }),
              AllOf(HasSubstr("eval_split"), HasSubstr("0.5"), HasSubstr("of 2")));
  for (double split : {-0.1, 1.0, std::nan("")})
    EXPECT_THAT(error_of([&] {
                  split_episodes(metadata->episodes(), {0, 1}, split);
                }),
                HasSubstr("eval_split"));
}

TEST(EvaluationPositions, TakesTheFirstFramesOfEachTask) {
  const Episodes tasks = {1, 1, 0, 0, 0, 1, 2};
  EXPECT_THAT(evaluation_positions(tasks, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(evaluation_positions(tasks, 6), ElementsAre(2, 3, 0, 1, 6));
  EXPECT_THAT(evaluation_positions(tasks, 1), ElementsAre(2, 0, 6));
  EXPECT_THAT(evaluation_positions(tasks, 100), ElementsAre(2, 3, 4, 0, 1, 5, 6));
}

}  // namespace
}  // namespace lerobot::dataset
