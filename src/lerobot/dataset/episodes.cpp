#include "lerobot/dataset/episodes.h"

#include <optional>
#include <unordered_map>

#include <arrow/array/array_binary.h>
#include <arrow/array/array_nested.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/dataset/parquet_file.h"

namespace lerobot::dataset {
namespace {

/// The first text of every row of a list column; empty for null and empty lists.
std::vector<std::string> first_of_lists(const arrow::Table& table, const std::string& column,
                                        std::string_view file) {
  std::vector<std::string> out;
  const auto values = table.GetColumnByName(column);
  const auto text_at = [&](const arrow::Array& texts, std::int64_t at) {
    if (texts.IsNull(at)) return std::string();
    if (texts.type_id() == arrow::Type::STRING)
      return std::string(static_cast<const arrow::StringArray&>(texts).GetView(at));
    if (texts.type_id() == arrow::Type::LARGE_STRING)
      return std::string(static_cast<const arrow::LargeStringArray&>(texts).GetView(at));
    fail("{}: column \"{}\": expected lists of text, found {}", file, column,
         values->type()->ToString());
  };
  const auto append = [&](const auto& lists) {
    for (std::int64_t row = 0; row < lists.length(); ++row)
      out.push_back(lists.IsNull(row) || lists.value_length(row) == 0
                        ? std::string()
                        : text_at(*lists.values(), lists.value_offset(row)));
  };
  for (const auto& chunk : values->chunks()) {
    if (chunk->type_id() == arrow::Type::LIST)
      append(static_cast<const arrow::ListArray&>(*chunk));
    else if (chunk->type_id() == arrow::Type::LARGE_LIST)
      append(static_cast<const arrow::LargeListArray&>(*chunk));
    else
      fail("{}: column \"{}\": expected lists of text, found {}", file, column,
           values->type()->ToString());
  }
  return out;
}

FileIndex file_index(std::int64_t chunk, std::int64_t file, std::int64_t episode,
                     std::string_view where) {
  if (chunk < 0 || file < 0)
    fail("{}: episode {} is in chunk {}, file {}: negative", where, episode, chunk, file);
  return {checked_cast<std::int32_t>(chunk, "chunk_index"),
          checked_cast<std::int32_t>(file, "file_index")};
}

}  // namespace

EpisodeTable EpisodeTable::read(const std::filesystem::path& directory, const DatasetInfo& info) {
  const auto paths = sorted_parquet_files(directory);
  if (paths.empty()) fail("{}: holds no */*.parquet file", directory.string());
  if (info.total_episodes == 0)
    fail("{}: info.json says that the dataset has 0 episodes", directory.string());

  const std::vector<std::string> cameras = info.video_keys();
  std::vector<std::string> columns = {"episode_index",      "length",
                                      "data/chunk_index",   "data/file_index",
                                      "dataset_from_index", "dataset_to_index"};
  for (const std::string& camera : cameras)
    for (const char* field : {"chunk_index", "file_index", "from_timestamp", "to_timestamp"})
      columns.push_back(fmt::format("videos/{}/{}", camera, field));

  // The table is sized by what is there, not by what info.json claims.
  std::vector<ParquetFile> files;
  std::int64_t rows = 0;
  for (const auto& path : paths) {
    files.emplace_back(path);
    rows = checked_add(rows, files.back().rows(), "number of episodes");
  }
  if (rows != info.total_episodes)
    fail("{}: holds {} episodes, but info.json says total_episodes = {}", directory.string(), rows,
         info.total_episodes);

  EpisodeTable table;
  const std::size_t size = checked_cast<std::size_t>(rows, "number of episodes");
  table.from_.resize(size);
  table.to_.resize(size);
  table.data_file_.resize(size);
  table.first_task_.assign(size, -1);
  table.segments_.assign(cameras.size(), std::vector<VideoSegment>(size));
  std::vector<bool> seen(size);
  std::unordered_map<std::string, std::int32_t> task_numbers;

  for (ParquetFile& file : files) {
    const std::string& name = file.name();
    std::vector<std::string> wanted = columns;
    const bool has_tasks = file.has_column("tasks");
    if (has_tasks) wanted.push_back("tasks");
    const auto values = file.read(wanted);
    const auto integers = [&](const std::string& column) {
      return integer_column(*values, column, name);
    };
    const auto episode_index = integers("episode_index");
    const auto length = integers("length");
    const auto data_chunk = integers("data/chunk_index");
    const auto data_file = integers("data/file_index");
    const auto from = integers("dataset_from_index");
    const auto to = integers("dataset_to_index");
    const auto tasks = has_tasks ? first_of_lists(*values, "tasks", name)
                                 : std::vector<std::string>(episode_index.size());

    for (std::size_t row = 0; row < episode_index.size(); ++row) {
      const std::int64_t episode = episode_index[row];
      if (episode < 0 || episode >= rows)
        fail("{}: row {} is episode {}, but the dataset has episodes 0 to {}", name, row, episode,
             rows - 1);
      const std::size_t at = index(episode);
      if (seen[at])
        fail("{}: episode {} stands in two rows, row {} is the second", name, episode, row);
      seen[at] = true;
      if (from[row] < 0 || to[row] < from[row] || to[row] - from[row] != length[row])
        fail("{}: episode {}: length is {}, but its frames are {} to {} (end exclusive)", name,
             episode, length[row], from[row], to[row]);
      if (length[row] == 0) fail("{}: episode {} has no frames", name, episode);
      table.from_[at] = from[row];
      table.to_[at] = to[row];
      table.data_file_[at] = file_index(data_chunk[row], data_file[row], episode, name);
      if (!tasks[row].empty()) {
        const auto [entry, added] =
            task_numbers.emplace(tasks[row], static_cast<std::int32_t>(table.task_texts_.size()));
        if (added) table.task_texts_.push_back(tasks[row]);
        table.first_task_[at] = entry->second;
      }
    }
    for (std::size_t camera = 0; camera < cameras.size(); ++camera) {
      const std::string prefix = fmt::format("videos/{}/", cameras[camera]);
      const auto chunk = integers(prefix + "chunk_index");
      const auto number = integers(prefix + "file_index");
      const auto from_s = number_column(*values, prefix + "from_timestamp", name);
      const auto to_s = number_column(*values, prefix + "to_timestamp", name);
      for (std::size_t row = 0; row < episode_index.size(); ++row)
        table.segments_[camera][index(episode_index[row])] = {
            file_index(chunk[row], number[row], episode_index[row], name), from_s[row], to_s[row]};
    }
  }

  // Every number below `rows` occurs once: as many rows as numbers, and none twice.
  std::int64_t end = 0;
  for (std::size_t episode = 0; episode < size; ++episode) {
    if (table.from_[episode] != end)
      fail(
          "{}: the frames of episode {} begin at {}, but those of the episode before end at {}: {}",
          directory.string(), episode, table.from_[episode], end,
          table.from_[episode] < end ? "they overlap" : "there is a gap");
    end = table.to_[episode];
  }
  if (end != info.total_frames)
    fail("{}: the episodes have {} frames, but info.json says total_frames = {}",
         directory.string(), end, info.total_frames);
  return table;
}

std::string_view EpisodeTable::first_task(std::int64_t episode) const {
  const std::int32_t number = first_task_[index(episode)];
  return number < 0 ? std::string_view() : task_texts_[static_cast<std::size_t>(number)];
}

}  // namespace lerobot::dataset
