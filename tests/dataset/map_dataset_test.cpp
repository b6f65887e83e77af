#include "lerobot/dataset/map_dataset.h"

#include <cmath>
#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/digest.h"
#include "lerobot/dataset/depth.h"
#include "lerobot/video/decoder_cache.h"
#include "tests/dataset/dataset_fixture.h"

namespace lerobot::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const MapDataset> open_dataset(const fs::path& root, MapDatasetOptions options = {},
                                               const char* depth_unit = "mm") {
  return MapDataset::open(DatasetMetadata::open(root, "toy/toy", depth_unit), std::move(options));
}

std::unique_ptr<BatchBuffer> read_rows(const MapDataset& dataset,
                                       const std::vector<std::int64_t>& positions) {
  video::DecoderCache decoders(16);
  auto buffer = dataset.layout().allocate(static_cast<std::int64_t>(positions.size()));
  for (std::size_t row = 0; row < positions.size(); ++row) {
    const auto at = static_cast<std::int64_t>(row);
    dataset.fill_values(positions[row], at, *buffer);
    for (std::size_t camera = 0; camera < dataset.layout().cameras(); ++camera)
      dataset.fill_camera(camera, positions[row], at, *buffer, decoders);
  }
  return buffer;
}

std::span<const std::uint8_t> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()};
}

const char* type_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "float32";
    case at::kLong:
      return "int64";
    case at::kBool:
      return "bool";
    case at::kByte:
      return "uint8";
    default:
      return "?";
  }
}

/// Row `row` of every tensor and text as make_item_oracle.py describes LeRobot's items.
Json described(const Batch& batch, std::int64_t row) {
  Json values = Json::object();
  for (const auto& [key, tensor] : batch.tensors) {
    const at::Tensor value = tensor[row].contiguous();
    values[key] = {type_name(value), value.sizes().vec(),
                   sha256_hex(bytes_of(value)).substr(0, 16)};
  }
  for (const auto& [key, texts] : batch.strings) values[key] = texts[static_cast<std::size_t>(row)];
  values["task"] = batch.task[static_cast<std::size_t>(row)];
  return values;
}

std::vector<std::int64_t> deltas_of(const Json& deltas, const std::string& key) {
  return deltas.contains(key) ? deltas[key].get<std::vector<std::int64_t>>()
                              : std::vector<std::int64_t>();
}

/// Each case is one dataset opened by LeRobot with windows and a selection; see
/// make_item_oracle.py.
class LeRobotItems : public testing::TestWithParam<const char*> {};

TEST_P(LeRobotItems, AreEqualToTheBit) {
  const Json oracle =
      read_json_file(fs::path(LEROBOT_TEST_DATA) / "oracles/dataset_items.json")[GetParam()];
  MapDatasetOptions options;
  const Json& deltas = oracle["deltas"];
  options.windows = {deltas_of(deltas, "observation.state"),
                     deltas_of(deltas, "observation.images.front"), deltas_of(deltas, "action"),
                     deltas_of(deltas, "next.reward")};
  if (options.windows.image.empty())
    options.windows.image = deltas_of(deltas, "observation.images.video");
  if (!oracle["episodes"].is_null())
    options.episodes = oracle["episodes"].get<std::vector<std::int64_t>>();
  const auto dataset = open_dataset(fixture(oracle["dataset"].get<std::string>()), options,
                                    oracle["unit"].get<std::string>().c_str());
  ASSERT_EQ(dataset->size(), oracle["size"].get<std::int64_t>());

  std::vector<std::int64_t> positions;
  for (const Json& item : oracle["items"])
    positions.push_back(item["position"].get<std::int64_t>());
  const auto buffer = read_rows(*dataset, positions);
  for (std::size_t row = 0; row < positions.size(); ++row) {
    const Json found = described(buffer->batch, static_cast<std::int64_t>(row));
    const Json& expected = oracle["items"][row]["values"];
    for (const auto& [key, value] : expected.items())
      EXPECT_EQ(found.contains(key) ? found[key] : Json(), value)
          << key << " of item " << positions[row];
    EXPECT_EQ(found.size(), expected.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LeRobotItems,
                         testing::Values("types_mm", "types_m", "types_windows", "h264_windows",
                                         "av1_single", "split_all", "split_1", "split_20",
                                         "split_024"),
                         [](const auto& info) { return std::string(info.param); });

class DecodedFrames : public testing::TestWithParam<const char*> {};

TEST_P(DecodedFrames, EqualTorchcodecsToTheByte) {
  const auto oracle =
      read_json_file(fs::path(LEROBOT_TEST_DATA) / "oracles/decoded_frames_chw_sha256.json");
  const std::string name = GetParam();
  const auto dataset = open_dataset(fixture(name));
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < dataset->size(); ++i) positions.push_back(i);
  const auto buffer = read_rows(*dataset, positions);
  for (std::size_t camera = 0; camera < dataset->layout().cameras(); ++camera) {
    const Json& expected = oracle[name + "." + dataset->layout().camera_name(camera)];
    ASSERT_EQ(expected.size(), positions.size());
    for (std::int64_t i = 0; i < dataset->size(); ++i)
      EXPECT_EQ(sha256_hex(bytes_of(dataset->layout().camera_row(camera, i, *buffer))),
                expected[static_cast<std::size_t>(i)].get<std::string>())
          << dataset->layout().camera_name(camera) << " frame " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DecodedFrames, testing::Values("toy_h264", "toy_av1"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MapDataset, OfAPartHasTheValuesOfTheWhole) {
  MapDatasetOptions options;
  options.windows = {{-1, 0, 1, 2}, {-1, 0, 1, 2}, {-1, 0, 1, 2}, {}};
  const auto whole = open_dataset(fixture("toy_split"), options);
  const EpisodeTable& episodes = whole->metadata().episodes();
  for (const std::vector<std::int64_t>& selection :
       {std::vector<std::int64_t>{1}, {2, 0}, {0, 2, 4}, {7}, {6, 3}}) {
    options.episodes = selection;
    const auto part = open_dataset(fixture("toy_split"), options);
    std::int64_t frames = 0;
    const auto first_rows = part->first_rows();
    for (std::int64_t episode = 0; episode < episodes.size(); ++episode) {
      const bool selected =
          std::find(selection.begin(), selection.end(), episode) != selection.end();
      EXPECT_EQ(first_rows[static_cast<std::size_t>(episode)], selected ? frames : -1);
      if (!selected) continue;
      for (std::int64_t i = 0; i < episodes.length(episode); ++i) {
        const auto of_part = read_rows(*part, {frames + i});
        const auto of_whole = read_rows(*whole, {episodes.from(episode) + i});
        EXPECT_EQ(described(of_part->batch, 0), described(of_whole->batch, 0));
      }
      frames += episodes.length(episode);
    }
    EXPECT_EQ(part->size(), frames);
  }
}

TEST(MapDataset, NeedsOnlyTheFilesOfTheSelectedEpisodes) {
  DatasetCopy dataset("toy_split");
  fs::remove(dataset.file("data/chunk-000/file-000.parquet"));
  fs::remove(dataset.file("videos/observation.images.front/chunk-000/file-000.mp4"));
  MapDatasetOptions options;
  options.episodes = {{3, 7}};
  EXPECT_EQ(open_dataset(dataset.root(), options)->size(),
            open_dataset(fixture("toy_split"), options)->size());
}

TEST(MapDataset, AcceptsPlainParquetOfOtherWriters) {
  // Variable-size lists, float64 times, another order of columns, no metadata, small row groups.
  DatasetCopy dataset("toy_split");
  for (const char* file : {"data/chunk-000/file-000.parquet", "data/chunk-000/file-001.parquet",
                           "data/chunk-001/file-000.parquet"})
    dataset.edit_table(
        file,
        [](std::shared_ptr<arrow::Table> table) {
          table = table->ReplaceSchemaMetadata(nullptr);
          const auto& fixed = static_cast<const arrow::FixedSizeListArray&>(
              *table->GetColumnByName("action")->chunk(0));
          const auto& numbers = static_cast<const arrow::FloatArray&>(*fixed.values());
          const auto values = std::make_shared<arrow::DoubleBuilder>();
          arrow::ListBuilder lists(arrow::default_memory_pool(), values);
          for (std::int64_t i = 0; i < fixed.length(); ++i) {
            EXPECT_TRUE(lists.Append().ok());
            for (int j = 0; j < fixed.value_length(); ++j)
              EXPECT_TRUE(values->Append(numbers.Value(i * fixed.value_length() + j)).ok());
          }
          table = with_column(table, "action", lists.Finish().ValueOrDie());
          std::vector<std::optional<double>> times;
          std::vector<std::optional<std::int32_t>> tasks;
          const auto frame = integers_of(table, "frame_index");
          for (const auto& number : frame) times.push_back(static_cast<double>(*number) / 10);
          for (const auto& number : integers_of(table, "task_index"))
            tasks.push_back(static_cast<std::int32_t>(*number));
          table = with_column(table, "timestamp", array_of<arrow::DoubleBuilder>(times));
          table = with_column(table, "task_index", array_of<arrow::Int32Builder>(tasks));
          std::vector<int> reversed;
          for (int i = table->num_columns(); i-- > 0;) reversed.push_back(i);
          return table->SelectColumns(reversed).ValueOrDie();
        },
        /*row_group_rows=*/5);
  for (const std::optional<std::vector<std::int64_t>>& episodes :
       {std::optional<std::vector<std::int64_t>>(), {{0, 2, 5}}}) {
    MapDatasetOptions options;
    options.episodes = episodes;
    const auto plain = open_dataset(dataset.root(), options);
    const auto original = open_dataset(fixture("toy_split"), options);
    ASSERT_EQ(plain->size(), original->size());
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < plain->size(); ++i) positions.push_back(i);
    const auto found = read_rows(*plain, positions);
    const auto expected = read_rows(*original, positions);
    for (std::int64_t i = 0; i < plain->size(); ++i)
      EXPECT_EQ(described(found->batch, i), described(expected->batch, i));
  }
}

TEST(MapDataset, KeepsNumbersThatAreNotFinite) {
  DatasetCopy dataset("toy_types");
  dataset.edit_data([](std::shared_ptr<arrow::Table> table) {
    std::vector<std::optional<double>> values = doubles_of(table, "scalar_f64");
    values[3] = std::nan("");
    values[4] = -std::numeric_limits<double>::infinity();
    return with_column(table, "scalar_f64", array_of<arrow::DoubleBuilder>(values));
  });
  const auto buffer = read_rows(*open_dataset(dataset.root()), {3, 4});
  const float* values = buffer->batch.at("scalar_f64").const_data_ptr<float>();
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], -std::numeric_limits<float>::infinity());
}

TEST(MapDataset, GivesEveryRowItsTaskByValue) {
  DatasetCopy dataset("toy_h264");
  const auto table =
      arrow::Table::Make(arrow::schema({arrow::field("task_index", arrow::int64()),
                                        arrow::field("__index_level_0__", arrow::utf8())}),
                         {array_of<arrow::Int64Builder, std::int64_t>({1, 0}),
                          array_of<arrow::StringBuilder, std::string>({"второе", "第一"})});
  write_table(*table, dataset.file("meta/tasks.parquet"));
  const auto buffer = read_rows(*open_dataset(dataset.root()), {0, 25});
  EXPECT_THAT(buffer->batch.task, ElementsAre("第一", "второе"));
}

TEST(MapDataset, ReadsFrameRatesThatAreNotWhole) {
  // The same frames on a time line of 29.97 frames a second, as NTSC cameras have it.
  constexpr double kRate = 30000.0 / 1001.0;
  DatasetCopy dataset("toy_av1");
  const std::string video = "videos/observation.images.front/chunk-000/file-000.mp4";
  const std::string command = fmt::format(
      "ffmpeg -v error -i {0} -vf setpts=N/TB*1001/30000 -r 30000/1001 -c:v libx264 -qp 0 -y {1} "
      "&& "
      "mv {1} {0}",
      dataset.file(video).string(), dataset.file("ntsc.mp4").string());
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "needs ffmpeg with libx264";
  dataset.edit_info([&](Json& info) { info["fps"] = kRate; });
  dataset.edit_data([&](std::shared_ptr<arrow::Table> table) {
    std::vector<std::optional<float>> times;
    for (const auto& frame : integers_of(table, "frame_index"))
      times.push_back(static_cast<float>(static_cast<double>(*frame) / kRate));
    return with_column(table, "timestamp", array_of<arrow::FloatBuilder>(times));
  });
  dataset.edit_episodes([&](std::shared_ptr<arrow::Table> table) {
    for (const char* field : {"from_timestamp", "to_timestamp"}) {
      const std::string column = fmt::format("videos/observation.images.front/{}", field);
      auto values = doubles_of(table, column);
      for (auto& value : values) value = std::round(*value * 10.0) / kRate;
      table = with_column(table, column, array_of<arrow::DoubleBuilder>(values));
    }
    return table;
  });
  const auto opened = open_dataset(dataset.root());
  EXPECT_EQ(opened->size(), 43);
  read_rows(*opened, {0, 11, 12, 42});
}

std::string hash_of(const std::vector<float>& values) {
  return sha256_hex(
      {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)});
}

TEST(DepthDequantizer, EqualsLeRobotsToTheBit) {
  std::vector<std::uint16_t> codes;
  for (std::uint16_t code = 0; code < 4096; ++code) codes.push_back(code);
  const Json oracle =
      read_json_file(fs::path(LEROBOT_TEST_DATA) / "oracles/depth_dequantized.json");
  EXPECT_EQ(oracle.size(), 6u);
  for (const Json& entry : oracle) {
    const DepthQuantizer quantizer{entry["min"].get<double>(), entry["max"].get<double>(),
                                   entry["shift"].get<double>(), entry["use_log"].get<bool>()};
    std::vector<float> distances(codes.size());
    DepthDequantizer(quantizer, entry["unit"].get<std::string>()).apply(codes, distances.data());
    EXPECT_EQ(hash_of(distances), entry["sha256"].get<std::string>()) << entry;
  }
}

TEST(MapDataset, OpensInMillisecondsWithoutReadingAFrame) {
  const fs::path pusht = fs::path(LEROBOT_TEST_DATA).parent_path().parent_path() / "data/pusht_sim";
  open_dataset(pusht);                      // Arrow registers its codecs once
  const std::clock_t began = std::clock();  // processor time: other programs do not count
  const auto dataset = open_dataset(pusht);
  const double took_s = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  EXPECT_EQ(dataset->size(), 2810);
  EXPECT_LT(took_s, 0.1);
  RecordProperty("milliseconds", std::to_string(took_s * 1000));
}

// ---- Broken data is found when the dataset is opened
// ---------------------------------------------

std::string open_error(const DatasetCopy& dataset, MapDatasetOptions options = {}) {
  return error_of([&] { open_dataset(dataset.root(), options); });
}

constexpr const char* kFront = "videos/observation.images.front/chunk-000/file-000.mp4";
constexpr const char* kData = "data/chunk-000/file-000.parquet";

TEST(BrokenDataset, MissingFilesAreNamedWithEpisodeAndCamera) {
  {
    DatasetCopy dataset("toy_split");
    fs::remove(dataset.file("videos/observation.images.front/chunk-001/file-001.mp4"));
    fs::remove(dataset.file("data/chunk-001/file-000.parquet"));
    EXPECT_THAT(open_error(dataset),
                AllOf(HasSubstr("chunk-001/file-001.mp4"), HasSubstr("missing"),
                      HasSubstr("episode 5"), HasSubstr("observation.images.front"),
                      HasSubstr("1 more"), HasSubstr("--dataset.episodes")));
  }
  {
    // A video file number that was never written.
    DatasetCopy dataset("toy_h264");
    dataset.edit_episodes(set_integer("videos/observation.images.wrist/file_index", 2, 5));
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("file-005.mp4"), HasSubstr("episode 2"),
                                           HasSubstr("observation.images.wrist")));
  }
}

TEST(BrokenDataset, PointersOfGitLfsAreRecognised) {
  for (const char* file : {kFront, kData}) {
    DatasetCopy dataset("toy_h264");
    dataset.write(file, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr(file), HasSubstr("git lfs pull")));
  }
}

TEST(BrokenDataset, FilesThatWereCutShortAreNamed) {
  for (const char* file : {kFront, kData}) {
    DatasetCopy dataset("toy_h264");
    dataset.cut(file, fs::file_size(dataset.file(file)) / 2);
    EXPECT_THAT(open_error(dataset), HasSubstr(file));
  }
}

TEST(BrokenDataset, RowsThatAreNotWhatTheMetadataSaysAreFound) {
  {
    // The middle file's episodes are pointed at the first file.
    DatasetCopy dataset("toy_split");
    dataset.edit_table("meta/episodes/chunk-000/file-001.parquet", [](auto table) {
      const auto count = static_cast<std::size_t>(table->num_rows());
      return with_column(
          table, "data/file_index",
          array_of<arrow::Int64Builder>(std::vector<std::optional<std::int64_t>>(count, 1)));
    });
    EXPECT_THAT(open_error(dataset),
                AllOf(HasSubstr(".parquet"), HasSubstr("rows"), HasSubstr("episodes")));
  }
  {
    DatasetCopy dataset("toy_h264");
    dataset.edit_data([](auto table) { return table->Slice(0, 42); });
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr(kData), HasSubstr("42 rows"),
                                           HasSubstr("43 frames"), HasSubstr("0 to 3")));
  }
  {
    DatasetCopy dataset("toy_h264");
    dataset.edit_data(set_integer("index", 20, 21));
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("row 20"), HasSubstr("episode 1"),
                                           HasSubstr("index 21"), HasSubstr("expected 20")));
  }
  {
    DatasetCopy dataset("toy_h264");
    dataset.edit_data(set_integer("episode_index", 12, 0));
    EXPECT_THAT(open_error(dataset),
                AllOf(HasSubstr("row 12"), HasSubstr("episode 0"), HasSubstr("episode 1")));
  }
  {
    DatasetCopy dataset("toy_h264");
    dataset.edit_data(set_integer("task_index", 13, 9));
    EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("frame 1 of episode 1"),
                                           HasSubstr("task_index 9"), HasSubstr("tasks.parquet")));
  }
  {
    // Both episodes' lengths are wrong, their sum is right.
    DatasetCopy dataset("toy_h264");
    dataset.edit_episodes([](std::shared_ptr<arrow::Table> table) {
      table = set_integer("dataset_to_index", 0, 11)(table);
      table = set_integer("length", 0, 11)(table);
      table = set_integer("dataset_from_index", 1, 11)(table);
      return set_integer("length", 1, 10)(table);
    });
    EXPECT_THAT(open_error(dataset),
                AllOf(HasSubstr("row 11"), HasSubstr("episode 0"), HasSubstr("episode 1")));
  }
}

TEST(BrokenDataset, ColumnsThatAreNotTheDeclaredOnesAreNamed) {
  const auto error = [](const TableEdit& edit) {
    DatasetCopy dataset("toy_types");
    dataset.edit_data(edit);
    return open_error(dataset);
  };
  EXPECT_THAT(error([](auto table) { return without_column(table, "vec_i64"); }),
              AllOf(HasSubstr("no column \"vec_i64\""), HasSubstr("declares")));
  EXPECT_THAT(error([](auto table) {
                return with_column(table, "extra", table->GetColumnByName("index")->chunk(0));
              }),
              AllOf(HasSubstr("\"extra\""), HasSubstr("does not declare")));
  EXPECT_THAT(error(set_double("scalar_f64", 6, std::nullopt)),
              AllOf(HasSubstr("scalar_f64"), HasSubstr("null in row 6")));
  EXPECT_THAT(error(set_integer("task_index", 2, std::nullopt)),
              AllOf(HasSubstr("task_index"), HasSubstr("null in row 2")));
  EXPECT_THAT(error([](auto table) {
                return with_column(table, "next.done", table->GetColumnByName("index")->chunk(0));
              }),
              AllOf(HasSubstr("next.done"), HasSubstr("int64"), HasSubstr("bool")));
  EXPECT_THAT(error([](auto table) {
                return with_column(table, "frame_index",
                                   table->GetColumnByName("timestamp")->chunk(0));
              }),
              AllOf(HasSubstr("frame_index"), HasSubstr("float"), HasSubstr("int64")));
  EXPECT_THAT(error([](auto table) {
                return with_column(table, "vec_i64", table->GetColumnByName("index")->chunk(0));
              }),
              AllOf(HasSubstr("vec_i64"), HasSubstr("shape [3]")));
  EXPECT_THAT(error([](auto table) {
                return with_column(
                    table, "action",
                    table->GetColumnByName("observation.environment_state")->chunk(0));
              }),
              AllOf(HasSubstr("action"), HasSubstr("3 values"), HasSubstr("declares 2")));
  EXPECT_THAT(error([](auto table) {
                return with_column(table, "mat_f32", table->GetColumnByName("cube_f32")->chunk(0));
              }),
              AllOf(HasSubstr("mat_f32"), HasSubstr("shape [2, 3]")));
  EXPECT_THAT(error([](auto table) {
                return with_column(table, "observation.images.still",
                                   table->GetColumnByName("note")->chunk(0));
              }),
              AllOf(HasSubstr("observation.images.still"), HasSubstr("string")));
}

TEST(BrokenDataset, VideoTimesThatCannotBeAreFound) {
  const auto error = [](const char* field, std::size_t episode, double value) {
    DatasetCopy dataset("toy_h264");
    dataset.edit_episodes(
        set_double(fmt::format("videos/observation.images.wrist/{}", field), episode, value));
    return open_error(dataset);
  };
  const auto names = AllOf(HasSubstr("episode 3"), HasSubstr("observation.images.wrist"),
                           HasSubstr("file-000.mp4"));
  // Offsets of a merged dataset that were not reset: 460 s off.
  EXPECT_THAT(error("from_timestamp", 3, 463.6), names);
  EXPECT_THAT(error("to_timestamp", 3, 464.3),
              AllOf(names, HasSubstr("464.3"), HasSubstr("ends at 4.3")));
  EXPECT_THAT(error("from_timestamp", 3, -1.0), AllOf(names, HasSubstr("-1")));
  EXPECT_THAT(error("from_timestamp", 3, std::nan("")), AllOf(names, HasSubstr("nan")));
  EXPECT_THAT(error("to_timestamp", 3, 3.6), AllOf(names, HasSubstr("3.6")));
  // The segment is shorter than the episode, whose frames would come from the next one.
  EXPECT_THAT(error("to_timestamp", 2, 3.2),
              AllOf(HasSubstr("episode 2"), HasSubstr("15 frames"), HasSubstr("room for 11")));
  // Off by half a frame: no frame is there.
  EXPECT_THAT(error("from_timestamp", 3, 3.55),
              AllOf(names, HasSubstr("frame 0"), HasSubstr("3.55"), HasSubstr("nearest")));
  // Another episode's frames.
  EXPECT_THAT(error("from_timestamp", 3, 3.1),
              AllOf(HasSubstr("episode 3"), HasSubstr("episode 2"), HasSubstr("overlap"),
                    HasSubstr("3.1"), HasSubstr("3.6")));
}

TEST(BrokenDataset, AVideoOneFrameShortIsFound) {
  DatasetCopy dataset("toy_h264");
  const std::string command =
      fmt::format("ffmpeg -v error -i {0} -frames:v 42 -c copy -y {1} && mv {1} {0}",
                  dataset.file(kFront).string(), dataset.file("short.mp4").string());
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "needs ffmpeg";
  EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("episode 3"), HasSubstr("front"),
                                         HasSubstr("frame 6"), HasSubstr("nearest")));
}

TEST(BrokenDataset, AFrameInTheMiddleThatNoTimeHitsIsFound) {
  DatasetCopy dataset("toy_h264");
  dataset.edit_data([](std::shared_ptr<arrow::Table> table) {
    std::vector<std::optional<float>> times;
    for (const auto& frame : integers_of(table, "frame_index"))
      times.push_back(static_cast<float>(*frame) / 10.0f);
    times[25] = *times[25] + 0.03f;
    return with_column(table, "timestamp", array_of<arrow::FloatBuilder>(times));
  });
  EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("episode 2"), HasSubstr("frame 4"),
                                         HasSubstr("0.0001"), HasSubstr("nearest")));
  MapDatasetOptions tolerant;
  tolerant.tolerance_s = 0.04;
  EXPECT_EQ(open_dataset(dataset.root(), tolerant)->size(), 43);
}

TEST(BrokenDataset, FramesOfAnotherSizeThanDeclaredAreNamed) {
  DatasetCopy dataset("toy_h264");
  dataset.edit_info([](Json& info) {
    info["features"]["observation.images.front"]["shape"] = {48, 96, 3};
  });
  EXPECT_THAT(open_error(dataset),
              AllOf(HasSubstr("front"), HasSubstr("96x96"), HasSubstr("96x48")));
}

TEST(BrokenDataset, SelectionsOutsideTheDatasetAreRefused) {
  MapDatasetOptions options;
  options.episodes = {{9}};
  EXPECT_THAT(error_of([&] { open_dataset(fixture("toy_h264"), options); }),
              AllOf(HasSubstr("episode 9"), HasSubstr("0 to 3")));
}

// ---- And when a frame is read
// ---------------------------------------------------------------------

TEST(BrokenFrame, IsNamedWithEpisodeCameraAndFrame) {
  DatasetCopy dataset("toy_h264");
  // The index stays whole, the coded frames of the whole file turn to noise.
  const std::string original = read_text_file(dataset.file(kFront));
  const std::size_t media = original.find("mdat");
  ASSERT_NE(media, original.npos);
  std::string broken = original;
  for (std::size_t i = media + 4; i < media + 4000 && i < broken.size(); ++i) broken[i] = '\xff';
  dataset.write(kFront, broken);
  EXPECT_THAT(error_of([&] { read_rows(*open_dataset(dataset.root()), {2}); }),
              AllOf(HasSubstr("episode 0"), HasSubstr("observation.images.front"),
                    HasSubstr("frame 2"), HasSubstr(kFront)));
}

TEST(BrokenFrame, OfAnImageColumnIsNamed) {
  DatasetCopy dataset("toy_types");
  dataset.edit_data([](std::shared_ptr<arrow::Table> table) {
    const auto images = std::static_pointer_cast<arrow::StructArray>(
        table->GetColumnByName("observation.images.still")->chunk(0));
    const auto& bytes = static_cast<const arrow::BinaryArray&>(*images->GetFieldByName("bytes"));
    std::vector<std::optional<std::string>> values;
    for (std::int64_t i = 0; i < bytes.length(); ++i) values.push_back(bytes.GetString(i));
    values[7] = values[7]->substr(0, 20);
    const auto broken = array_of<arrow::BinaryBuilder>(values);
    return with_column(table, "observation.images.still",
                       arrow::StructArray::Make({broken, images->GetFieldByName("path")},
                                                std::vector<std::string>{"bytes", "path"})
                           .ValueOrDie());
  });
  const auto opened = open_dataset(dataset.root());
  read_rows(*opened, {6});
  EXPECT_THAT(error_of([&] { read_rows(*opened, {7}); }),
              AllOf(HasSubstr("observation.images.still"), HasSubstr("frame"), HasSubstr(kData)));
}

TEST(BrokenFrame, AnImageWithoutBytesIsRefusedAtTheStart) {
  DatasetCopy dataset("toy_types");
  dataset.edit_data([](std::shared_ptr<arrow::Table> table) {
    const auto images = std::static_pointer_cast<arrow::StructArray>(
        table->GetColumnByName("observation.images.still")->chunk(0));
    const std::vector<std::optional<std::string>> none(static_cast<std::size_t>(images->length()));
    return with_column(table, "observation.images.still",
                       arrow::StructArray::Make(
                           {array_of<arrow::BinaryBuilder>(none), images->GetFieldByName("path")},
                           std::vector<std::string>{"bytes", "path"})
                           .ValueOrDie());
  });
  EXPECT_THAT(open_error(dataset), AllOf(HasSubstr("no image bytes"), HasSubstr("row 0")));
}

}  // namespace
}  // namespace lerobot::dataset
