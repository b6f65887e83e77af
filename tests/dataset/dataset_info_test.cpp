#include "lerobot/dataset/dataset_info.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/dataset/dataset_fixture.h"

namespace lerobot::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Json valid_info() { return read_json_file(fixture("toy_types") / "meta/info.json"); }

/// What parsing says after `edit`.
std::string error_after(const std::function<void(Json&)>& edit) {
  Json json = valid_info();
  edit(json);
  return error_of([&] { parse_dataset_info(json, "info.json"); });
}

TEST(DatasetInfo, KeepsFeaturesInOrderWithTheirTypes) {
  const DatasetInfo info = parse_dataset_info(valid_info(), "info.json");
  EXPECT_EQ(info.fps, 30.0);
  EXPECT_EQ(info.total_episodes, 2);
  EXPECT_EQ(info.total_frames, 10);
  ASSERT_EQ(info.features.size(), 19u);
  EXPECT_EQ(info.features.front().name, "observation.state");
  EXPECT_EQ(info.features.back().name, "task_index");
  EXPECT_EQ(info.find("scalar_f64")->type, ValueType::kFloat32);
  EXPECT_EQ(info.find("vec_i64")->type, ValueType::kInt64);
  EXPECT_EQ(info.find("next.done")->type, ValueType::kBool);
  EXPECT_EQ(info.find("note")->type, ValueType::kString);
  EXPECT_THAT(info.find("cube_f32")->shape, ElementsAre(2, 3, 2));
  EXPECT_THAT(info.find("next.reward")->sample_shape(), ElementsAre());
  EXPECT_THAT(info.find("observation.images.still")->sample_shape(), ElementsAre(3, 64, 64));
  EXPECT_THAT(info.video_keys(),
              ElementsAre("observation.images.video", "observation.images.depthvid"));
  EXPECT_EQ(info.find("nothing"), nullptr);
}

TEST(DatasetInfo, ReadsDepthCamerasAlsoInTheirOlderSpellings) {
  Json json = valid_info();
  const Feature* depth = nullptr;
  const DatasetInfo info = parse_dataset_info(json, "info.json");
  depth = info.find("observation.images.depthvid");
  EXPECT_TRUE(depth->is_depth);
  EXPECT_EQ(depth->depth_unit, "mm");
  EXPECT_EQ(depth->depth_quantizer, (DepthQuantizer{0.01, 10.0, 3.5, true}));
  EXPECT_FALSE(info.find("observation.images.video")->is_depth);

  Json& entry = json["features"]["observation.images.depthvid"];
  entry["info"].erase("is_depth_map");
  entry["info"]["video.is_depth_map"] = true;
  EXPECT_TRUE(parse_dataset_info(json, "info.json").find("observation.images.depthvid")->is_depth);
  entry["info"] = nullptr;
  entry["video_info"] = {{"video.is_depth_map", true}};
  EXPECT_TRUE(parse_dataset_info(json, "info.json").find("observation.images.depthvid")->is_depth);
}

TEST(DatasetInfo, ShapesOfCamerasAreChannelFirstUnlessTheThirdNameSaysChannel) {
  Json json = valid_info();
  Json& entry = json["features"]["observation.images.video"];
  entry["shape"] = {3, 48, 64};
  entry["names"] = {"channels", "height", "width"};
  const auto shape = [&] {
    return parse_dataset_info(json, "info.json").find("observation.images.video")->sample_shape();
  };
  EXPECT_THAT(shape(), ElementsAre(3, 48, 64));
  entry["shape"] = {48, 64, 3};
  entry["names"] = {"height", "width", "channel"};
  EXPECT_THAT(shape(), ElementsAre(3, 48, 64));
}

TEST(DatasetInfo, SaysWhichVersionWasFoundAndNeeded) {
  for (const char* version : {"v2.1", "v2.0", "2.3.0", "v1.6"})
    EXPECT_THAT(error_after([&](Json& json) { json["codebase_version"] = version; }),
                AllOf(HasSubstr(version), HasSubstr("v3.0 is needed"),
                      HasSubstr("convert_dataset_v21_to_v30")));
  EXPECT_THAT(error_after([](Json& json) { json["codebase_version"] = "v4.0"; }),
              AllOf(HasSubstr("v4.0"), HasSubstr("v3.0 is needed"), HasSubstr("newer")));
  EXPECT_THAT(error_after([](Json& json) { json.erase("codebase_version"); }),
              AllOf(HasSubstr("no codebase_version"), HasSubstr("v3.0")));
  EXPECT_THAT(error_after([](Json& json) { json["codebase_version"] = 3; }),
              AllOf(HasSubstr("codebase_version is 3"), HasSubstr("v3.0")));
  EXPECT_THAT(error_after([](Json& json) { json["codebase_version"] = "latest"; }),
              HasSubstr("\"latest\""));
}

TEST(DatasetInfo, ReadsOtherMinorVersions) {
  for (const char* version : {"3.0", "v3.0.1", "v3.1", "v3"}) {
    Json json = valid_info();
    json["codebase_version"] = version;
    EXPECT_EQ(parse_dataset_info(json, "info.json").codebase_version, version);
  }
}

TEST(DatasetInfo, RefusesFrameRatesThatAreNoPositiveNumber) {
  const auto error = [](const Json& fps) {
    return error_after([&](Json& json) { json["fps"] = fps; });
  };
  EXPECT_THAT(error(std::nan("")), AllOf(HasSubstr("fps"), HasSubstr("NaN")));
  EXPECT_THAT(error(std::numeric_limits<double>::infinity()),
              AllOf(HasSubstr("fps"), HasSubstr("Infinity")));
  EXPECT_THAT(error(0), AllOf(HasSubstr("fps"), HasSubstr("found 0")));
  EXPECT_THAT(error(-1), AllOf(HasSubstr("fps"), HasSubstr("found -1")));
  EXPECT_THAT(error("30"), AllOf(HasSubstr("fps"), HasSubstr("found \"30\"")));
  EXPECT_THAT(error(true), AllOf(HasSubstr("fps"), HasSubstr("found true")));
  EXPECT_THAT(error(nullptr), AllOf(HasSubstr("fps"), HasSubstr("found null")));
  EXPECT_THAT(error_after([](Json& json) { json.erase("fps"); }), HasSubstr("has no fps"));
}

TEST(DatasetInfo, ReadsFrameRatesThatAreNotWhole) {
  Json json = valid_info();
  json["fps"] = 29.97;
  EXPECT_EQ(parse_dataset_info(json, "info.json").fps, 29.97);
}

TEST(DatasetInfo, RefusesFeaturesItCannotRead) {
  const auto error = [](const char* name, const Json& feature) {
    return error_after([&](Json& json) { json["features"][name] = feature; });
  };
  const Json scalar = {{"dtype", "float32"}, {"shape", {1}}, {"names", nullptr}};
  EXPECT_THAT(error("a/b", scalar), AllOf(HasSubstr("a/b"), HasSubstr("'/'")));
  EXPECT_THAT(error("language_events", {{"dtype", "language"}, {"shape", {1}}}),
              AllOf(HasSubstr("language_events"), HasSubstr("not supported")));
  EXPECT_THAT(error("x", {{"dtype", "language"}, {"shape", {1}}}), HasSubstr("not supported"));
  EXPECT_THAT(error("x", {{"dtype", "complex64"}, {"shape", {1}}}), HasSubstr("complex64"));
  EXPECT_THAT(error("x", {{"shape", {1}}}), HasSubstr("no dtype"));
  EXPECT_THAT(error("x", {{"dtype", "float32"}}), HasSubstr("no shape"));
  EXPECT_THAT(error("x", {{"dtype", "float32"}, {"shape", {0}}}), HasSubstr("[0]"));
  EXPECT_THAT(error("x", {{"dtype", "float32"}, {"shape", {"2"}}}), HasSubstr("[\"2\"]"));
  EXPECT_THAT(error("x", {{"dtype", "float32"}, {"shape", Json::array()}}),
              HasSubstr("1 to 5 dimensions"));
  EXPECT_THAT(error("x", {{"dtype", "float32"}, {"shape", {1 << 30, 1 << 30, 1 << 30}}}),
              HasSubstr("overflow"));
  EXPECT_THAT(error("x", {{"dtype", "string"}, {"shape", {2}}}), HasSubstr("[1]"));
  EXPECT_THAT(error("x", {{"dtype", "video"}, {"shape", {64, 64}}}), HasSubstr("3 dimensions"));
  EXPECT_THAT(error("x", {{"dtype", "video"},
                          {"shape", {64, 64, 1}},
                          {"names", {"height", "width", "channels"}}}),
              AllOf(HasSubstr("3 channel"), HasSubstr("found 1")));
  EXPECT_THAT(
      error("x", {{"dtype", "float32"}, {"shape", {1}}, {"info", {{"is_depth_map", true}}}}),
      HasSubstr("depth"));
  EXPECT_THAT(error_after([](Json& json) { json["features"].erase("index"); }),
              HasSubstr("\"index\""));
  EXPECT_THAT(error_after([](Json& json) { json["features"]["task_index"]["dtype"] = "float32"; }),
              AllOf(HasSubstr("task_index"), HasSubstr("integer")));
  EXPECT_THAT(error_after([](Json& json) { json.erase("features"); }), HasSubstr("features"));
}

TEST(DatasetInfo, RefusesDepthNumbersThatHaveNoInverse) {
  const auto error = [](const char* key, const Json& value) {
    return error_after(
        [&](Json& json) { json["features"]["observation.images.depthvid"]["info"][key] = value; });
  };
  EXPECT_THAT(error("depth_unit", "cm"), AllOf(HasSubstr("depth_unit"), HasSubstr("cm")));
  EXPECT_THAT(error("video.depth_max", 0.01), HasSubstr("depth_max"));
  EXPECT_THAT(error("video.shift", -1), HasSubstr("video.shift"));
  EXPECT_THAT(error("video.shift", "x"), HasSubstr("video.shift"));
  EXPECT_THAT(error("video.use_log", 1), HasSubstr("use_log"));
}

TEST(DatasetInfo, RefusesCountsAndPathsOfTheWrongKind) {
  EXPECT_THAT(error_after([](Json& json) { json["total_frames"] = -1; }),
              AllOf(HasSubstr("total_frames"), HasSubstr("-1")));
  EXPECT_THAT(error_after([](Json& json) { json["total_episodes"] = 1.5; }),
              AllOf(HasSubstr("total_episodes"), HasSubstr("1.5")));
  EXPECT_THAT(error_after([](Json& json) { json["chunks_size"] = 0; }), HasSubstr("chunks_size"));
  EXPECT_THAT(error_after([](Json& json) { json["data_path"] = 7; }), HasSubstr("data_path"));
  EXPECT_THAT(error_after([](Json& json) { json["video_path"] = nullptr; }),
              AllOf(HasSubstr("video_path"), HasSubstr("observation.images.video")));
}

TEST(PathTemplate, ExpandsPythonFormatFields) {
  const PathTemplate path("videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
                          "video_path");
  EXPECT_EQ(path.expand(0, 7, "front"), "videos/front/chunk-000/file-007.mp4");
  EXPECT_EQ(path.expand(12, 1234, "front"), "videos/front/chunk-012/file-1234.mp4");
  EXPECT_EQ(PathTemplate("{chunk_index}-{file_index:4d}-{{x}}", "p").expand(1, 2), "1-   2-{x}");
}

TEST(PathTemplate, RefusesWhatItCannotExpand) {
  const auto error = [](const char* text) {
    return error_of([&] { PathTemplate path(text, "data_path"); });
  };
  EXPECT_THAT(error("data/chunk-{episode_chunk:03d}/{file_index}.parquet"),
              AllOf(HasSubstr("data_path"), HasSubstr("{episode_chunk}"), HasSubstr("2.1")));
  EXPECT_THAT(error("{file}.parquet"), HasSubstr("{file}"));
  EXPECT_THAT(error("{file_index:x}.parquet"), HasSubstr("\"x\""));
  EXPECT_THAT(error("{file_index:999d}"), HasSubstr("999d"));
  EXPECT_THAT(error("{video_key:03d}"), HasSubstr("03d"));
  EXPECT_THAT(error("{file_index"), HasSubstr("{"));
  EXPECT_THAT(error("file}"), HasSubstr("}"));
  EXPECT_THAT(error("/etc/{file_index}"), HasSubstr("relative"));
  EXPECT_THAT(error("../{file_index}"), HasSubstr("leave"));
  EXPECT_THAT(error(""), HasSubstr("empty"));
}

}  // namespace
}  // namespace lerobot::dataset
