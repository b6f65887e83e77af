// From a frame of one camera to the memory of a batch. Internal to the dataset room.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/dataset/depth.h"
#include "lerobot/dataset/frame_table.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/video/decoder_cache.h"
#include "lerobot/video/packet_source.h"

namespace lerobot::dataset {

/// Reads the frames of one camera: RGB as uint8 planes, depth as float32 in the dataset's output
/// unit. Immutable and thread-safe.
class CameraReader {
 public:
  /// `video_camera` counts DatasetInfo::video_keys(); images have none.
  CameraReader(const DatasetMetadata& metadata, const Feature& feature,
               std::optional<std::size_t> video_camera, double tolerance_s);

  const Feature& feature() const { return feature_; }
  bool is_rgb() const { return !feature_.is_depth; }
  /// Of one frame in a batch.
  std::int64_t frame_bytes() const { return frame_bytes_; }

  /// Writes the frames `frames` (global numbers) of the episode `run` of `table` one after the
  /// other to `out`. The frames of a video are asked for in one call, from `video`. Throws Error
  /// with episode, camera, frame and file.
  void read(const FrameTable& table, const FrameTable::Run& run,
            const std::vector<std::int64_t>& frames, std::uint8_t* out,
            const std::shared_ptr<const video::PacketSource>& video,
            video::DecoderCache& decoders) const;

 private:
  void read_video(const FrameTable& table, const FrameTable::Run& run,
                  const std::vector<std::int64_t>& frames, std::uint8_t* out,
                  const std::shared_ptr<const video::PacketSource>& video,
                  video::DecoderCache& decoders) const;
  void read_image(const FrameTable& table, const FrameTable::Run& run, std::int64_t frame,
                  std::uint8_t* out) const;

  const DatasetMetadata& metadata_;
  Feature feature_;
  std::optional<std::size_t> video_camera_;
  double tolerance_s_;
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
  std::int64_t frame_bytes_ = 0;
  std::optional<DepthDequantizer> dequantizer_;  // depth videos
  std::size_t column_ = 0;                       // the times of a video's frames, or the images
};

}  // namespace lerobot::dataset
