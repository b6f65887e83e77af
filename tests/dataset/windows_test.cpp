#include "lerobot/dataset/windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/dataset/dataset_fixture.h"

namespace lerobot::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

DatasetInfo info_of(const Json& features) {
  Json json = read_json_file(fixture("toy_types") / "meta/info.json");
  for (const auto& [name, feature] : features.items()) json["features"][name] = feature;
  return parse_dataset_info(json, "info.json");
}

TEST(Windows, BelongToTheFeaturesThatLeRobotGivesThemTo) {
  const DatasetInfo info =
      info_of({{"action.extra", {{"dtype", "float32"}, {"shape", {2}}, {"names", nullptr}}}});
  const config::DeltaIndices deltas{{-1, 0}, {-2, 0}, {0, 1, 2}, {5}};
  std::vector<std::string> shown;
  for (const Window& window : resolve_windows(info, deltas))
    shown.push_back(window.key + " " + to_python_json(window.deltas, -1));
  EXPECT_THAT(shown,
              ElementsAre("observation.state [-1, 0]", "observation.environment_state [-1, 0]",
                          "action [0, 1, 2]", "next.reward [5]", "observation.images.still [-2, 0]",
                          "observation.images.video [-2, 0]", "observation.images.depthvid [-2, 0]",
                          "observation.images.depthimg [-2, 0]"));
}

TEST(Windows, AreAbsentWithoutOffsets) {
  EXPECT_TRUE(resolve_windows(info_of(Json::object()), {}).empty());
}

TEST(Windows, OfTextAreRefused) {
  const DatasetInfo info =
      info_of({{"observation.note", {{"dtype", "string"}, {"shape", {1}}, {"names", nullptr}}}});
  EXPECT_THAT(error_of([&] {
                resolve_windows(info, {{-1, 0}, {}, {}, {}});
              }),
              AllOf(HasSubstr("observation.note"), HasSubstr("text")));
}

TEST(Windows, AreClampedToTheEpisodeAndMarkWhatLiesOutside) {
  const auto shown = [](std::int64_t frame, std::int64_t delta) {
    const WindowStep step = window_step(frame, delta, 10, 14);
    return std::pair(step.frame, step.is_pad);
  };
  EXPECT_EQ(shown(10, -1), std::pair(std::int64_t{10}, true));
  EXPECT_EQ(shown(10, 0), std::pair(std::int64_t{10}, false));
  EXPECT_EQ(shown(12, 1), std::pair(std::int64_t{13}, false));
  EXPECT_EQ(shown(12, 2), std::pair(std::int64_t{13}, true));
  EXPECT_EQ(shown(13, -99), std::pair(std::int64_t{10}, true));
}

}  // namespace
}  // namespace lerobot::dataset
