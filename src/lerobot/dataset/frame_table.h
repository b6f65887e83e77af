// The data Parquet of the selected episodes in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lerobot/dataset/frame_column.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/dataset/parquet_file.h"

namespace lerobot::dataset {

/// Every feature but the videos, for every frame of the selected episodes. Position p counts those
/// frames in the order of the dataset. Immutable and thread-safe.
class FrameTable {
 public:
  /// `episodes` ascend. Reads the row groups they need of their data files and releases Arrow's
  /// memory on the way. Throws Error with file, episode and both numbers when a file is missing or
  /// damaged, its columns are not the declared ones, it holds another number of rows than
  /// meta/episodes says, or a row's index, episode_index or task_index is not the expected one.
  static FrameTable load(const DatasetMetadata& metadata, std::span<const std::int64_t> episodes);

  /// The rows of one episode out of its data file, wherever in it they lie: row groups whose
  /// statistics exclude the episode are not read. Throws Error as load() does.
  static FrameTable load_episode(const DatasetMetadata& metadata, std::int64_t episode,
                                 const ParquetFile& file);
  /// The row groups that load_episode() reads.
  static std::vector<int> groups_of_episode(const ParquetFile& file, std::int64_t episode);

  /// The part of one episode. Positions and global frame numbers differ by a constant in it.
  struct Run {
    std::int64_t episode = 0;
    std::int64_t position = 0;  // of its first frame
    std::int64_t from = 0;      // its first and one past its last global frame number
    std::int64_t to = 0;

    std::int64_t position_of(std::int64_t frame) const { return position + frame - from; }
    std::int64_t frame_of(std::int64_t at) const { return from + at - position; }
  };

  std::int64_t size() const { return size_; }
  const std::vector<Run>& runs() const { return runs_; }
  /// The episode that a position lies in.
  const Run& run_of(std::int64_t position) const;

  /// One column a feature, in the order of the features, without videos, "index" and
  /// "episode_index": those follow from the position.
  const std::vector<FrameColumn>& columns() const { return columns_; }
  /// Throws InternalError when there is none.
  const FrameColumn& column(std::string_view feature) const;
  /// Which of columns() a feature's is, for every table of a dataset. Throws InternalError when
  /// there is none.
  static std::size_t column_number(const DatasetInfo& info, std::string_view feature);

 private:
  static FrameTable with_columns(const DatasetInfo& info);
  void drop_numbering();

  std::int64_t size_ = 0;
  std::vector<Run> runs_;
  std::vector<FrameColumn> columns_;
};

}  // namespace lerobot::dataset
