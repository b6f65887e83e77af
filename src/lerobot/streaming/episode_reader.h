// From an episode's number to everything that its samples are made of: the rows of its data file
// and the coded frames of its videos.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lerobot/base/recently_used.h"
#include "lerobot/dataset/frame_table.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/streaming/fetched_video.h"
#include "lerobot/streaming/payload.h"
#include "lerobot/streaming/video_index.h"

namespace parquet {
class FileMetaData;
}

namespace lerobot::streaming {

/// An episode in memory.
struct FetchedEpisode {
  dataset::FrameTable table;  ///< its rows alone
  /// By DatasetMetadata::video_keys().
  std::vector<std::shared_ptr<const video::PacketSource>> videos;
  std::uint64_t payload_bytes = 0;  ///< held by `videos`

  const dataset::FrameTable::Run& run() const { return table.runs().front(); }
};

/// Thread-safe: several threads fetch at once.
class EpisodeReader {
 public:
  /// `index` is null for a dataset without videos.
  EpisodeReader(std::shared_ptr<const dataset::DatasetMetadata> metadata,
                std::shared_ptr<const VideoIndex> index, std::shared_ptr<Payload> payload,
                double tolerance_s);

  /// What the episode counts in the byte budget: EpisodeSlice::reserved_bytes of all its cameras.
  std::uint64_t reserved_bytes(std::int64_t episode) const;
  /// At least reserved_bytes(), without a look at samples.
  std::uint64_t reserved_bytes_bound(std::int64_t episode) const;

  /// Reads the episode: the row groups of its data file and, of every video, from the keyframe that
  /// its first frame needs to its last one, all side by side. Throws Error naming episode, file and
  /// reason when bytes can't be had, disagree with the metadata, or a frame has no picture within
  /// the tolerance.
  std::shared_ptr<const FetchedEpisode> fetch(std::int64_t episode);

 private:
  struct WantedVideo;
  struct WantedRows;
  WantedRows plan_rows(std::int64_t episode);
  WantedVideo plan_video(std::int64_t episode, std::size_t camera) const;
  EpisodeSlice slice(std::int64_t episode, std::size_t camera) const;
  std::shared_ptr<parquet::FileMetaData> footer(const std::string& path);
  void check_frames(std::int64_t episode, const FetchedEpisode& fetched) const;

  const std::shared_ptr<const dataset::DatasetMetadata> metadata_;
  const std::shared_ptr<const VideoIndex> index_;
  const std::shared_ptr<Payload> payload_;
  const double tolerance_s_;

  std::mutex mutex_;
  // A data file is opened once: its footer stays. By weight in bytes.
  RecentlyUsed<std::string, std::shared_ptr<parquet::FileMetaData>> footers_;
};

}  // namespace lerobot::streaming
