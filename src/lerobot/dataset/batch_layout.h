// What a batch of a dataset looks like, and how one sample gets into a row of it: the same for a
// dataset in memory and for one that is streamed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/dataset/frame_table.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/video/packet_source.h"

namespace lerobot::video {
class DecoderCache;
}

namespace lerobot::dataset {

/// A batch under construction with the addresses of its rows. Made by BatchLayout::allocate().
class BatchBuffer {
 public:
  /// The tensors, for `capacity` rows each. Task texts and other strings are filled in with the
  /// rows.
  Batch batch;
  std::int64_t capacity = 0;

  /// True when nobody else holds one of the tensors or a view of it, so that it may be filled
  /// again.
  bool is_unshared() const;
  /// The batch of the first `rows` rows; shares the buffer's memory.
  Batch first_rows(std::int64_t rows) const;

 private:
  friend class BatchLayout;
  std::vector<std::uint8_t*> data_;  // by output of the layout
  std::vector<std::vector<std::string>*> texts_;
};

/// Immutable and thread-safe: rows of one buffer are filled by several threads at once.
class BatchLayout {
 public:
  /// `windows` are the policy's. A frame may be `tolerance_s` away from the time that is asked for.
  /// Throws Error for windows that the features can't have.
  BatchLayout(std::shared_ptr<const DatasetMetadata> metadata, const config::DeltaIndices& windows,
              double tolerance_s);
  ~BatchLayout();

  /// Tensors for `rows` samples. Pinned memory needs a CUDA build.
  std::unique_ptr<BatchBuffer> allocate(std::int64_t rows, bool pinned = false) const;

  /// Cameras in the order of the features. A sample is complete after fill_values() and one
  /// fill_camera() for each of them, in any order and on any thread.
  std::size_t cameras() const;
  const std::string& camera_name(std::size_t camera) const;
  /// True for RGB cameras: what image transforms apply to.
  bool camera_is_rgb(std::size_t camera) const;
  /// Which of DatasetMetadata::video_keys() a camera is; nullopt for images in the data Parquet.
  std::optional<std::size_t> video_of_camera(std::size_t camera) const;

  /// Writes everything but the cameras of a frame (global number) into a row. `run` is the frame's
  /// episode in `table`.
  void fill_values(const FrameTable& table, const FrameTable::Run& run, std::int64_t frame,
                   std::int64_t row, BatchBuffer& buffer) const;
  /// Decodes the frames of one camera's window into a row, asking for all of them at once. `video`
  /// holds the episode's frames; null for images. Throws Error with episode, camera, frame, times
  /// and file when one cannot be read.
  void fill_camera(std::size_t camera, const FrameTable& table, const FrameTable::Run& run,
                   std::int64_t frame, const std::shared_ptr<const video::PacketSource>& video,
                   std::int64_t row, BatchBuffer& buffer, video::DecoderCache& decoders) const;
  /// The row of a camera as a tensor that shares its memory: [C,H,W], or [T,C,H,W] with a window.
  at::Tensor camera_row(std::size_t camera, std::int64_t row, BatchBuffer& buffer) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

/// Buffers that are filled again as soon as the consumer has dropped what it was given of them. Not
/// thread-safe.
class BatchBuffers {
 public:
  /// Of `rows` rows each; at most `kept` delivered ones are remembered. Page-locked memory comes
  /// anew every time: torch's caching allocator knows when a copy to the device that is under way
  /// has ended, a use count does not.
  BatchBuffers(const BatchLayout& layout, std::int64_t rows, bool pinned, std::size_t kept);

  std::unique_ptr<BatchBuffer> take();
  /// The batch of the first `rows` rows for the consumer.
  Batch deliver(std::unique_ptr<BatchBuffer> buffer, std::int64_t rows);

 private:
  const BatchLayout& layout_;
  const std::int64_t rows_;
  const bool pinned_;
  const std::size_t kept_;
  std::vector<std::unique_ptr<BatchBuffer>> delivered_;  // perhaps still held by the consumer
};

}  // namespace lerobot::dataset
