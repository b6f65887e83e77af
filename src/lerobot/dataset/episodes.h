// meta/episodes/*/*.parquet: where every episode's frames are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/dataset/dataset_info.h"

namespace lerobot::dataset {

/// Chunk and file number of a data or video file.
struct FileIndex {
  std::int32_t chunk = 0;
  std::int32_t file = 0;
  auto operator<=>(const FileIndex&) const = default;
};

/// An episode's part of one camera's MP4 file. Times are seconds in that file.
struct VideoSegment {
  FileIndex file;
  double from_s = 0.0;
  double to_s = 0.0;
};

/// Every episode of a dataset, column by column: about 40 bytes an episode and 24 a camera, so that
/// a million episodes stay small. Immutable and thread-safe.
class EpisodeTable {
 public:
  EpisodeTable() = default;
  /// Reads the columns it needs (never stats/*) of every file under `directory` (meta/episodes), in
  /// the order of their sorted paths. Throws Error with episode, file and both numbers when a file
  /// or column is missing or damaged, a value is null, an episode is missing, doubled or empty, a
  /// length disagrees with its frame range, frame ranges overlap or leave a gap, or the counts
  /// disagree with `info`.
  static EpisodeTable read(const std::filesystem::path& directory, const DatasetInfo& info);

  std::int64_t size() const { return static_cast<std::int64_t>(from_.size()); }
  /// Global number of the episode's first frame, and of the frame after its last.
  std::int64_t from(std::int64_t episode) const { return from_[index(episode)]; }
  std::int64_t to(std::int64_t episode) const { return to_[index(episode)]; }
  std::int64_t length(std::int64_t episode) const { return to(episode) - from(episode); }
  std::span<const std::int64_t> all_from() const { return from_; }
  std::span<const std::int64_t> all_to() const { return to_; }

  FileIndex data_file(std::int64_t episode) const { return data_file_[index(episode)]; }
  /// `camera` counts DatasetInfo::video_keys().
  const VideoSegment& video(std::int64_t episode, std::size_t camera) const {
    return segments_[camera][index(episode)];
  }
  /// The first entry of the episode's "tasks"; empty when it has none.
  std::string_view first_task(std::int64_t episode) const;

 private:
  static std::size_t index(std::int64_t episode) { return static_cast<std::size_t>(episode); }

  std::vector<std::int64_t> from_;
  std::vector<std::int64_t> to_;
  std::vector<FileIndex> data_file_;
  std::vector<std::vector<VideoSegment>> segments_;  // by camera
  std::vector<std::int32_t> first_task_;             // into task_texts_; -1: none
  std::vector<std::string> task_texts_;
};

}  // namespace lerobot::dataset
