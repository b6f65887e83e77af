// A local dataset, ready for random access: metadata, the data Parquet's columns in memory, indexed
// video files, and the way from a frame to a row of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/dataset/metadata.h"

namespace lerobot::video {
class DecoderCache;
}

namespace lerobot::dataset {

struct MapDatasetOptions {
  /// Episodes to load, in any order; all without it.
  std::optional<std::vector<std::int64_t>> episodes;
  /// The policy's windows.
  config::DeltaIndices windows;
  /// A frame may be this far from the time that is asked for, in seconds.
  double tolerance_s = 1e-4;
};

/// A batch under construction with the addresses of its rows. Made by MapDataset::allocate().
class BatchBuffer {
 public:
  /// The tensors, for `rows` rows each. Task texts and other strings are filled in with the rows.
  Batch batch;
  std::int64_t capacity = 0;

  /// True when nobody else holds one of the tensors or a view of it, so that it may be filled
  /// again.
  bool is_unshared() const;

 private:
  friend class MapDataset;
  std::vector<std::uint8_t*> data_;  // by output of the dataset's plan
  std::vector<std::vector<std::string>*> texts_;
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

  /// Tensors for `rows` samples. Pinned memory needs a CUDA build.
  std::unique_ptr<BatchBuffer> allocate(std::int64_t rows, bool pinned = false) const;

  /// Cameras in the order of the features. A sample is complete after fill_values() and one
  /// fill_camera() for each of them, in any order and on any thread.
  std::size_t cameras() const;
  const std::string& camera_name(std::size_t camera) const;
  /// True for RGB cameras: what image transforms apply to.
  bool camera_is_rgb(std::size_t camera) const;

  /// Writes everything but the cameras of the frame at `position` into a row.
  void fill_values(std::int64_t position, std::int64_t row, BatchBuffer& buffer) const;
  /// Decodes the frames of one camera's window into a row, asking for all of them at once. Throws
  /// Error with episode, camera, frame, times and file when one cannot be read.
  void fill_camera(std::size_t camera, std::int64_t position, std::int64_t row, BatchBuffer& buffer,
                   video::DecoderCache& decoders) const;
  /// The row of a camera as a tensor that shares its memory: [C,H,W], or [T,C,H,W] with a window.
  at::Tensor camera_row(std::size_t camera, std::int64_t row, BatchBuffer& buffer) const;

 private:
  struct Plan;
  MapDataset();
  std::unique_ptr<Plan> plan_;
};

}  // namespace lerobot::dataset
