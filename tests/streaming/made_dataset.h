// LeRobotDatasets made for a test: any episode lengths, frame rate, and ffmpeg options.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "lerobot/dataset/metadata.h"
#include "lerobot/video/video_file.h"
#include "tests/dataset/dataset_fixture.h"

namespace lerobot::streaming {

/// A folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "lerobot stream-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct MadeVideo {
  /// What ffmpeg is told between input and output.
  std::string codec_options = "-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 2 -bf 0";
  /// Episodes of each file; one file for all by default.
  std::vector<std::size_t> episodes_per_file = {};
  /// Copied once more with these options after it was made, to move edit lists or times.
  std::string remux_options = "";
  /// Frames before the first one that are made, and then hidden by an edit list.
  std::int64_t hidden_frames = 0;
};

/// Writes a dataset of one 96x64 camera and a two-dimensional action to `root`.
inline void make_dataset(const fs::path& root, const std::vector<std::int64_t>& lengths, double fps,
                         const std::string& rate, const MadeVideo& made = {},
                         std::int64_t row_group_rows = 1 << 20) {
  const std::string camera = "observation.images.top";
  for (const char* folder : {"meta/episodes/chunk-000", "data/chunk-000"})
    fs::create_directories(root / folder);
  fs::create_directories(root / "videos" / camera / "chunk-000");
  fs::copy(dataset::fixture("toy_state") / "meta" / "tasks.parquet", root / "meta/tasks.parquet");

  std::vector<std::size_t> files = made.episodes_per_file;
  if (files.empty()) files = {lengths.size()};
  std::vector<std::optional<std::int64_t>> file_of, chunk_of, from, to, length, number;
  std::vector<std::optional<double>> from_s, to_s;
  std::int64_t frames = 0;
  std::size_t episode = 0;
  for (std::size_t file = 0; file < files.size(); ++file) {
    std::int64_t in_file = 0;
    for (std::size_t i = 0; i < files[file]; ++i) in_file += lengths[episode + i];
    const fs::path path =
        root / "videos" / camera / "chunk-000" / fmt::format("file-{:03d}.mp4", file);
    const auto run = [](const std::string& arguments) {
      const std::string command = "ffmpeg -nostdin -v error -y " + arguments;
      ASSERT_EQ(std::system(command.c_str()), 0) << command;
    };
    const bool is_copied = !made.remux_options.empty() || made.hidden_frames > 0;
    const fs::path coded = is_copied ? root / "coded.mp4" : path;
    run(fmt::format("-f lavfi -i testsrc2=size=96x64:rate={} -frames:v {} {} '{}'", rate,
                    in_file + made.hidden_frames, made.codec_options, coded.string()));
    if (is_copied)
      run(fmt::format("-ss {} -i '{}' -c copy {} '{}'",
                      static_cast<double>(made.hidden_frames) / fps, coded.string(),
                      made.remux_options, path.string()));
    double at_s = video::VideoFile::open(path)->first_time_s();
    for (std::size_t i = 0; i < files[file]; ++i, ++episode) {
      number.emplace_back(static_cast<std::int64_t>(episode));
      file_of.emplace_back(static_cast<std::int64_t>(file));
      chunk_of.emplace_back(0);
      from.emplace_back(frames);
      frames += lengths[episode];
      to.emplace_back(frames);
      length.emplace_back(lengths[episode]);
      from_s.emplace_back(at_s);
      at_s += static_cast<double>(lengths[episode]) / fps;
      to_s.emplace_back(at_s);
    }
  }

  using Int64 = arrow::Int64Builder;
  using Double = arrow::DoubleBuilder;
  const std::vector<std::optional<std::int64_t>> zeros(lengths.size(), 0);
  std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>> columns = {
      {"episode_index", dataset::array_of<Int64>(number)},
      {"length", dataset::array_of<Int64>(length)},
      {"data/chunk_index", dataset::array_of<Int64>(zeros)},
      {"data/file_index", dataset::array_of<Int64>(zeros)},
      {"dataset_from_index", dataset::array_of<Int64>(from)},
      {"dataset_to_index", dataset::array_of<Int64>(to)},
      {"videos/" + camera + "/chunk_index", dataset::array_of<Int64>(chunk_of)},
      {"videos/" + camera + "/file_index", dataset::array_of<Int64>(file_of)},
      {"videos/" + camera + "/from_timestamp", dataset::array_of<Double>(from_s)},
      {"videos/" + camera + "/to_timestamp", dataset::array_of<Double>(to_s)}};
  const auto write = [&](const fs::path& path, std::int64_t rows) {
    std::vector<std::shared_ptr<arrow::Field>> fields;
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (const auto& [name, array] : columns) {
      fields.push_back(arrow::field(name, array->type()));
      arrays.push_back(array);
    }
    dataset::write_table(*arrow::Table::Make(arrow::schema(fields), arrays), path, rows);
  };
  write(root / "meta/episodes/chunk-000/file-000.parquet", 1 << 20);

  std::vector<std::optional<std::int64_t>> frame_index, episode_index, index, task_index;
  arrow::FloatBuilder timestamps;
  arrow::ListBuilder actions(arrow::default_memory_pool(), std::make_shared<arrow::FloatBuilder>());
  auto& numbers = static_cast<arrow::FloatBuilder&>(*actions.value_builder());
  for (std::size_t e = 0; e < lengths.size(); ++e)
    for (std::int64_t f = 0; f < lengths[e]; ++f) {
      index.emplace_back(static_cast<std::int64_t>(index.size()));
      frame_index.emplace_back(f);
      episode_index.emplace_back(static_cast<std::int64_t>(e));
      task_index.emplace_back(0);
      ASSERT_TRUE(timestamps.Append(static_cast<float>(static_cast<double>(f) / fps)).ok());
      ASSERT_TRUE(actions.Append().ok());
      ASSERT_TRUE(numbers.Append(static_cast<float>(f)).ok());
      ASSERT_TRUE(numbers.Append(static_cast<float>(e)).ok());
    }
  columns = {{"action", actions.Finish().ValueOrDie()},
             {"timestamp", timestamps.Finish().ValueOrDie()},
             {"frame_index", dataset::array_of<Int64>(frame_index)},
             {"episode_index", dataset::array_of<Int64>(episode_index)},
             {"index", dataset::array_of<Int64>(index)},
             {"task_index", dataset::array_of<Int64>(task_index)}};
  write(root / "data/chunk-000/file-000.parquet", row_group_rows);

  const auto feature = [](const char* dtype, std::vector<int> shape) {
    return Json{{"dtype", dtype}, {"shape", shape}, {"names", nullptr}};
  };
  Json info = {
      {"codebase_version", "v3.0"},
      {"robot_type", nullptr},
      {"total_episodes", lengths.size()},
      {"total_frames", frames},
      {"total_tasks", 2},
      {"chunks_size", 1000},
      {"fps", fps},
      {"splits", Json::object()},
      {"data_path", "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"},
      {"video_path", "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"},
      {"features",
       {{camera, feature("video", {64, 96, 3})},
        {"action", feature("float32", {2})},
        {"timestamp", feature("float32", {1})},
        {"frame_index", feature("int64", {1})},
        {"episode_index", feature("int64", {1})},
        {"index", feature("int64", {1})},
        {"task_index", feature("int64", {1})}}}};
  info["features"][camera]["names"] = {"height", "width", "channels"};
  write_file_atomic(root / "meta/info.json", to_python_json(info, 4));
}

}  // namespace lerobot::streaming
