#include "lerobot/dataset/metadata.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/dataset/stats.h"
#include "tests/dataset/dataset_fixture.h"

namespace lerobot::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string open_error(const DatasetCopy& dataset) {
  return error_of([&] { DatasetMetadata::open(dataset.root(), "toy/broken"); });
}

TEST(DatasetMetadata, ReadsEpisodesThatRollOverAcrossFiles) {
  const auto metadata = DatasetMetadata::open(fixture("toy_split"), "toy/split");
  const EpisodeTable& episodes = metadata->episodes();
  ASSERT_EQ(episodes.size(), 8);
  std::vector<std::string> data, video;
  std::vector<double> from;
  for (std::int64_t episode = 0; episode < 8; ++episode) {
    const FileIndex file = episodes.data_file(episode);
    data.push_back(fmt::format("{}/{}", file.chunk, file.file));
    const VideoSegment& segment = episodes.video(episode, 0);
    video.push_back(fmt::format("{}/{}", segment.file.chunk, segment.file.file));
    from.push_back(segment.from_s);
  }
  EXPECT_THAT(data, ElementsAre("0/0", "0/0", "0/0", "0/1", "0/1", "0/1", "1/0", "1/0"));
  EXPECT_THAT(video, ElementsAre("0/0", "0/0", "0/1", "0/1", "1/0", "1/1", "1/1", "2/0"));
  EXPECT_THAT(from, ElementsAre(0.0, 1.2, 0.0, 1.5, 0.0, 0.0, 0.5, 0.0));
  EXPECT_EQ(metadata->data_file(7), fixture("toy_split") / "data/chunk-001/file-000.parquet");
  EXPECT_EQ(metadata->video_file(5, 0),
            fixture("toy_split") / "videos/observation.images.front/chunk-001/file-001.mp4");
}

TEST(DatasetMetadata, GivesThePolicyItsFeaturesInOrder) {
  const auto features = DatasetMetadata::open(fixture("toy_types"), "toy/types")->policy_features();
  std::vector<std::string> shown;
  for (const auto& [name, feature] : features)
    shown.push_back(fmt::format("{} {} {}", name, static_cast<int>(feature.type),
                                to_python_json(feature.shape, -1)));
  const auto row = [](const char* name, config::FeatureType type, const char* shape) {
    return fmt::format("{} {} {}", name, static_cast<int>(type), shape);
  };
  EXPECT_THAT(
      shown,
      ElementsAre(row("observation.state", config::FeatureType::kState, "[2]"),
                  row("observation.environment_state", config::FeatureType::kEnv, "[3]"),
                  row("action", config::FeatureType::kAction, "[2]"),
                  row("observation.images.still", config::FeatureType::kVisual, "[3, 64, 64]"),
                  row("observation.images.video", config::FeatureType::kVisual, "[3, 64, 64]"),
                  row("observation.images.depthvid", config::FeatureType::kVisual, "[1, 64, 64]"),
                  row("observation.images.depthimg", config::FeatureType::kVisual, "[1, 64, 64]")));
}

TEST(DatasetMetadata, SaysWhatIsMissing) {
  EXPECT_THAT(
      error_of([] { DatasetMetadata::open("/nowhere/at/all", "toy/none"); }),
      AllOf(HasSubstr("toy/none"), HasSubstr("/nowhere/at/all"), HasSubstr("check the path")));
  {
    DatasetCopy dataset("toy_h264");
    fs::remove(dataset.file("meta/tasks.parquet"));
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("tasks.parquet"), HasSubstr("missing")));
  }
  {
    DatasetCopy dataset("toy_h264");
    fs::remove_all(dataset.file("meta/episodes"));
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("meta/episodes"), HasSubstr("missing")));
    fs::create_directory(dataset.file("meta/episodes"));
    EXPECT_THAT(open_error(dataset), HasSubstr("no */*.parquet"));
  }
  {
    DatasetCopy dataset("toy_h264");
    fs::remove(dataset.file("meta/info.json"));
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("info.json"), HasSubstr("missing")));
  }
}

TEST(DatasetMetadata, RecognisesTheTagOfVersionThreeOnFilesOfVersionTwo) {
  DatasetCopy dataset("toy_h264");
  fs::remove_all(dataset.file("meta/episodes"));
  fs::remove(dataset.file("meta/tasks.parquet"));
  dataset.write("meta/episodes.jsonl", "{}\n");
  EXPECT_THAT(open_error(dataset),
              AllOf(HasSubstr("v3.0"), HasSubstr("v2.1"), HasSubstr("convert_dataset_v21_to_v30")));
}

TEST(DatasetMetadata, ReportsTheVersionBeforeAnythingElse) {
  DatasetCopy dataset("toy_h264");
  fs::remove_all(dataset.file("meta/episodes"));
  dataset.edit_info([](Json& info) {
    info["codebase_version"] = "v2.1";
    info["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet";
  });
  EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("v2.1"), HasSubstr("v3.0")));
}

TEST(DatasetMetadata, RefusesAFrameRateThatPythonWroteAsNaN) {
  DatasetCopy dataset("toy_h264");
  dataset.edit_info([](Json& info) { info["fps"] = std::nan(""); });
  EXPECT_THAT(read_text_file(dataset.file("meta/info.json")), HasSubstr("\"fps\": NaN"));
  EXPECT_THAT(open_error(dataset),
              AllOf(HasSubstr("info.json"), HasSubstr("fps"), HasSubstr("NaN")));
}

TEST(DatasetMetadata, RecognisesPointersOfGitLfs) {
  constexpr const char* kPointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
  for (const char* file : {"meta/tasks.parquet", "meta/episodes/chunk-000/file-000.parquet",
                           "meta/stats.json", "meta/info.json"}) {
    DatasetCopy dataset("toy_h264");
    dataset.write(file, kPointer);
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr(file), HasSubstr("git lfs pull")));
  }
}

// ---- Tasks
// ---------------------------------------------------------------------------------------

TEST(TaskTable, MatchesByValueAndReadsEitherNameOfTheIndexColumn) {
  const auto shuffled = [](const char* text_column, const char* pandas) {
    DatasetCopy dataset("toy_h264");
    auto table = arrow::Table::Make(
        arrow::schema(
            {arrow::field("task_index", arrow::int64()), arrow::field(text_column, arrow::utf8())}),
        {array_of<arrow::Int64Builder, std::int64_t>({2, 0, 1}),
         array_of<arrow::StringBuilder, std::string>({"置く", "pick", "plaça"})});
    if (pandas)
      table = table->ReplaceSchemaMetadata(arrow::key_value_metadata({{"pandas", pandas}}));
    write_table(*table, dataset.file("meta/tasks.parquet"));
    const TaskTable tasks = TaskTable::read(dataset.file("meta/tasks.parquet"));
    EXPECT_EQ(tasks.size(), 3u);
    EXPECT_EQ(*tasks.find(0), "pick");
    EXPECT_EQ(*tasks.find(1), "plaça");
    EXPECT_EQ(*tasks.find(2), "置く");
    EXPECT_EQ(tasks.find(3), nullptr);
  };
  shuffled("task", R"({"index_columns": ["task"]})");
  shuffled("task", nullptr);
  shuffled("__index_level_0__", nullptr);
  shuffled("__index_level_0__", R"({"index_columns": ["__index_level_0__"]})");
  shuffled("instruction", R"({"index_columns": ["instruction"]})");
  shuffled("task", R"({"index_columns": [{"kind": "range", "start": 0}]})");
}

TEST(TaskTable, RefusesTablesWithoutTextAndNumbersThatOccurTwice) {
  DatasetCopy dataset("toy_h264");
  const auto path = dataset.file("meta/tasks.parquet");
  const auto error = [&](std::shared_ptr<arrow::Table> table) {
    write_table(*table, path);
    return error_of([&] { TaskTable::read(path); });
  };
  const auto original = read_table(path)->ReplaceSchemaMetadata(nullptr);
  EXPECT_THAT(error(without_column(original, "task")), HasSubstr("__index_level_0__"));
  EXPECT_THAT(error(without_column(original, "task_index")),
              AllOf(HasSubstr("no column"), HasSubstr("task_index")));
  EXPECT_THAT(error(set_integer("task_index", 1, 0)(original)),
              AllOf(HasSubstr("task_index 0"), HasSubstr("row 1")));
  EXPECT_THAT(error(set_integer("task_index", 0, std::nullopt)(original)),
              AllOf(HasSubstr("null"), HasSubstr("row 0")));
}

// ---- Episodes
// ------------------------------------------------------------------------------------

TEST(EpisodeTable, ReadsWithoutTheStatisticsOfTheEpisodes) {
  DatasetCopy dataset("toy_h264");
  dataset.edit_episodes([](std::shared_ptr<arrow::Table> table) {
    for (const std::string& column : table->ColumnNames())
      if (column.starts_with("stats/")) table = without_column(table, column);
    return table;
  });
  const auto metadata = DatasetMetadata::open(dataset.root(), "toy/h264");
  EXPECT_EQ(metadata->episodes().length(2), 15);
  EXPECT_EQ(metadata->episodes().first_task(2), "place");
}

TEST(EpisodeTable, TakesEpisodesByNumberWhateverTheOrderOfTheRows) {
  DatasetCopy dataset("toy_h264");
  dataset.edit_episodes([](const std::shared_ptr<arrow::Table>& table) {
    return arrow::ConcatenateTables({table->Slice(2), table->Slice(0, 2)}).ValueOrDie();
  });
  const auto metadata = DatasetMetadata::open(dataset.root(), "toy/h264");
  EXPECT_EQ(metadata->episodes().from(2), 21);
  EXPECT_EQ(metadata->episodes().video(3, 1).from_s, 3.6);
}

TEST(EpisodeTable, RefusesRowsThatDisagree) {
  const auto error = [](const TableEdit& edit) {
    DatasetCopy dataset("toy_h264");
    dataset.edit_episodes(edit);
    return open_error(dataset);
  };
  EXPECT_THAT(error(set_integer("length", 1, 10)),
              AllOf(HasSubstr("episode 1"), HasSubstr("10"), HasSubstr("12 to 21")));
  EXPECT_THAT(error(set_integer("episode_index", 1, 0)),
              AllOf(HasSubstr("episode 0"), HasSubstr("two rows"), HasSubstr("row 1")));
  EXPECT_THAT(error(set_integer("episode_index", 3, 4)),
              AllOf(HasSubstr("episode 4"), HasSubstr("0 to 3")));
  EXPECT_THAT(error(set_integer("dataset_from_index", 2, std::nullopt)),
              AllOf(HasSubstr("dataset_from_index"), HasSubstr("null"), HasSubstr("row 2")));
  EXPECT_THAT(error(set_integer("data/file_index", 0, std::nullopt)),
              AllOf(HasSubstr("data/file_index"), HasSubstr("null")));
  EXPECT_THAT(error(set_integer("data/file_index", 0, -1)),
              AllOf(HasSubstr("episode 0"), HasSubstr("-1")));
  EXPECT_THAT(error(set_integer("data/chunk_index", 0, std::int64_t{1} << 40)),
              HasSubstr("out of range"));
  EXPECT_THAT(error(set_double("videos/observation.images.wrist/from_timestamp", 1, std::nullopt)),
              AllOf(HasSubstr("wrist"), HasSubstr("null"), HasSubstr("row 1")));
  EXPECT_THAT(error([](auto table) { return without_column(table, "dataset_to_index"); }),
              AllOf(HasSubstr("no column"), HasSubstr("dataset_to_index")));
  EXPECT_THAT(error([](auto table) {
                return with_column(
                    table, "length",
                    array_of<arrow::StringBuilder, std::string>({"12", "9", "15", "7"}));
              }),
              AllOf(HasSubstr("length"), HasSubstr("integers"), HasSubstr("string")));
  EXPECT_THAT(error([](auto table) { return table->Slice(0, 3); }),
              AllOf(HasSubstr("3 episodes"), HasSubstr("total_episodes = 4")));
}

TEST(EpisodeTable, RefusesFrameRangesThatOverlapLeaveGapsOrAreEmpty) {
  const auto error = [](std::int64_t from, std::int64_t to) {
    DatasetCopy dataset("toy_h264");
    dataset.edit_episodes([&](std::shared_ptr<arrow::Table> table) {
      table = set_integer("dataset_from_index", 1, from)(table);
      table = set_integer("dataset_to_index", 1, to)(table);
      return set_integer("length", 1, to - from)(table);
    });
    return open_error(dataset);
  };
  EXPECT_THAT(error(11, 21), AllOf(HasSubstr("episode 1"), HasSubstr("11"), HasSubstr("12"),
                                   HasSubstr("overlap")));
  EXPECT_THAT(error(13, 21),
              AllOf(HasSubstr("episode 1"), HasSubstr("13"), HasSubstr("12"), HasSubstr("gap")));
  EXPECT_THAT(error(12, 12), AllOf(HasSubstr("episode 1"), HasSubstr("no frames")));
}

TEST(EpisodeTable, RefusesTotalsThatDisagreeWithInfo) {
  DatasetCopy dataset("toy_h264");
  dataset.edit_info([](Json& info) { info["total_frames"] = 44; });
  EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("43"), HasSubstr("total_frames = 44")));
  dataset.edit_info([](Json& info) { info["total_episodes"] = 0; });
  EXPECT_THAT(open_error(dataset), HasSubstr("0"));
}

TEST(EpisodeTable, RefusesFilesThatWereCutShort) {
  DatasetCopy dataset("toy_h264");
  const char* file = "meta/episodes/chunk-000/file-000.parquet";
  for (const std::uintmax_t bytes : {1000u, 3u, 0u}) {
    dataset.cut(file, bytes);
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr(file), HasSubstr("cut short")));
  }
}

TEST(EpisodeTable, AcceptsTimesAsFloat32) {
  DatasetCopy dataset("toy_h264");
  dataset.edit_episodes([](std::shared_ptr<arrow::Table> table) {
    for (const char* field : {"from_timestamp", "to_timestamp"}) {
      const std::string column = fmt::format("videos/observation.images.front/{}", field);
      std::vector<std::optional<float>> narrow;
      for (const auto& value : doubles_of(table, column))
        narrow.push_back(static_cast<float>(*value));
      table = with_column(table, column, array_of<arrow::FloatBuilder>(narrow));
    }
    return table;
  });
  EXPECT_EQ(DatasetMetadata::open(dataset.root(), "x")->episodes().video(1, 0).from_s,
            static_cast<double>(1.2f));
}

// ---- Statistics
// ----------------------------------------------------------------------------------

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor contiguous = tensor.contiguous();
  const float* data = contiguous.const_data_ptr<float>();
  return {data, data + contiguous.numel()};
}

TEST(DatasetStats, KeepsTheShapesOfTheFile) {
  const auto metadata = DatasetMetadata::open(fixture("toy_h264"), "toy/h264");
  const DatasetStats& stats = metadata->stats();
  const Json json = read_json_file(fixture("toy_h264") / "meta/stats.json");
  EXPECT_EQ(stats.size(), json.size());
  EXPECT_EQ(stats.at("observation.images.front").at("mean").sizes(), at::IntArrayRef({3, 1, 1}));
  EXPECT_EQ(stats.at("observation.state").at("q99").sizes(), at::IntArrayRef({4}));
  EXPECT_EQ(stats.at("timestamp").at("count").sizes(), at::IntArrayRef({1}));
  const auto mean = values_of(stats.at("action").at("mean"));
  for (std::size_t i = 0; i < mean.size(); ++i)
    EXPECT_EQ(mean[i], static_cast<float>(json["action"]["mean"][i].get<double>()));
}

TEST(DatasetStats, AreNotNeededToOpenADataset) {
  DatasetCopy dataset("toy_h264");
  fs::remove(dataset.file("meta/stats.json"));
  EXPECT_TRUE(DatasetMetadata::open(dataset.root(), "x")->stats().empty());
}

TEST(DatasetStats, OfDepthCamerasComeInTheUnitOfTheFrames) {
  const auto mean = [](const char* unit, const char* camera, const char* statistic) {
    const auto metadata = DatasetMetadata::open(fixture("toy_types"), "toy/types", unit);
    return values_of(metadata->stats().at(camera).at(statistic)).at(0);
  };
  const Json json = read_json_file(fixture("toy_types") / "meta/stats.json");
  const double stored = json["observation.images.depthimg"]["mean"][0][0][0].get<double>();
  EXPECT_EQ(mean("mm", "observation.images.depthimg", "mean"), static_cast<float>(stored));
  EXPECT_EQ(mean("m", "observation.images.depthimg", "mean"),
            static_cast<float>(stored * (1.0 / 1000.0)));
  EXPECT_EQ(mean("m", "observation.images.depthimg", "count"),
            mean("mm", "observation.images.depthimg", "count"));
  EXPECT_EQ(mean("m", "observation.images.video", "mean"),
            mean("mm", "observation.images.video", "mean"));
  EXPECT_THAT(error_of([] { DatasetMetadata::open(fixture("toy_types"), "x", "cm"); }),
              AllOf(HasSubstr("depth_output_unit"), HasSubstr("cm")));
}

TEST(DatasetStats, ImageNetReplacesMeanAndStdOfColourCamerasOnly) {
  const auto metadata = DatasetMetadata::open(fixture("toy_types"), "toy/types");
  DatasetStats stats = metadata->stats();
  stats.erase("observation.images.still");
  use_imagenet_stats(stats, metadata->info());
  for (const char* camera : {"observation.images.video", "observation.images.still"}) {
    EXPECT_THAT(values_of(stats.at(camera).at("mean")), ElementsAre(0.485f, 0.456f, 0.406f));
    EXPECT_THAT(values_of(stats.at(camera).at("std")), ElementsAre(0.229f, 0.224f, 0.225f));
    EXPECT_EQ(stats.at(camera).at("std").sizes(), at::IntArrayRef({3, 1, 1}));
  }
  for (const auto& [name, before] : metadata->stats()) {
    if (name == "observation.images.still") continue;
    for (const auto& [statistic, tensor] : before) {
      const bool replaced =
          name == "observation.images.video" && (statistic == "mean" || statistic == "std");
      EXPECT_EQ(values_of(stats.at(name).at(statistic)) == values_of(tensor), !replaced)
          << name << " " << statistic;
    }
  }
}

TEST(DatasetStats, RefusesWhatIsNoNestedListOfNumbers) {
  const auto error = [](const Json& value) {
    DatasetCopy dataset("toy_h264");
    dataset.edit_json("meta/stats.json", [&](Json& stats) { stats["action"]["mean"] = value; });
    return open_error(dataset);
  };
  for (const Json& value : {Json("x"), Json({1.0, "x"}), Json({1.0, {2.0}}), Json({{1.0}, 2.0}),
                            Json({{1.0, 2.0}, {3.0}}), Json(nullptr)})
    EXPECT_THAT(error(value), AllOf(HasSubstr("\"action\""), HasSubstr("\"mean\""))) << value;
}

}  // namespace
}  // namespace lerobot::dataset
