// A local dataset, ready for random access: metadata, the data Parquet's columns in memory, indexed
// video files, and the way from a frame to a row of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch_layout.h"
#include "lerobot/dataset/metadata.h"

namespace lerobot::dataset {

struct MapDatasetOptions {
  /// Episodes to load, in any order; all without it.
  std::optional<std::vector<std::int64_t>> episodes;
  /// The policy's windows.
  config::DeltaIndices windows;
  /// A frame may be this far from the time that is asked for, in seconds.
  double tolerance_s = 1e-4;
};

/// Immutable and thread-safe: rows of batches are filled by several threads at once, each with a
/// decoder cache of its own.
class MapDataset {
 public:
  /// Opens the files of the selected episodes and loads their columns. Throws Error with file,
  /// episode, camera and both numbers when something is missing, damaged or disagrees:
  /// docs/datasets.md lists the checks. Frames whose times are wrong but lie inside the right file
  /// can't be told from right ones.
  static std::shared_ptr<const MapDataset> open(std::shared_ptr<const DatasetMetadata> metadata,
                                                MapDatasetOptions options = {});
  ~MapDataset();

  const DatasetMetadata& metadata() const;
  /// Frames of the selected episodes. Positions count them in the order of the dataset.
  std::int64_t size() const;
  /// The selected episodes in ascending order.
  std::span<const std::int64_t> episodes() const;
  /// One entry for every episode of the dataset: the position of its first frame, -1 when it is not
  /// selected (SamplerOptions::first_row).
  std::vector<std::int64_t> first_rows() const;
  /// task_index by position.
  std::span<const std::int64_t> task_index() const;

  /// The batches of this dataset.
  const BatchLayout& layout() const;
  /// BatchLayout::fill_values() of the frame at `position`.
  void fill_values(std::int64_t position, std::int64_t row, BatchBuffer& buffer) const;
  /// BatchLayout::fill_camera() of the frame at `position`.
  void fill_camera(std::size_t camera, std::int64_t position, std::int64_t row, BatchBuffer& buffer,
                   video::DecoderCache& decoders) const;

 private:
  struct Content;
  MapDataset();
  std::unique_ptr<Content> content_;
};

}  // namespace lerobot::dataset
