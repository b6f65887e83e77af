#include "lerobot/streaming/episode_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <parquet/metadata.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/dataset/parquet_file.h"
#include "lerobot/streaming/parquet_blocks.h"
#include "lerobot/video/decoder.h"
#include "lerobot/video/random_access.h"

namespace lerobot::streaming {
namespace {

/// Footers that are kept, by the bytes they have in their files (parsed they take a few times
/// that).
constexpr std::uint64_t kFooterBytes = std::uint64_t{32} << 20;

/// Samples [first, last] that decoding the presented frames of [from_s, to_s] takes.
std::pair<std::size_t, std::size_t> samples_of_frames(const video::Mp4Index& index, double from_s,
                                                      double to_s) {
  std::size_t first = index.samples.size() - 1;
  std::size_t last = 0;
  const std::size_t last_frame = index.nearest_frame(to_s);
  for (std::size_t frame = index.nearest_frame(from_s); frame <= last_frame; ++frame) {
    const std::size_t sample = index.sample_of_frame(frame);
    first = std::min(first, video::random_access_point(index, sample));
    last = std::max(last, sample);
  }
  return {std::min(first, last), last};
}

}  // namespace

/// A video of an episode before its bytes are there.
struct EpisodeReader::WantedVideo {
  std::string path;
  video::Mp4Index index;
  std::uint64_t byte_offset = 0;
  PageMemory bytes;
};

/// The row groups of an episode before their bytes are there.
struct EpisodeReader::WantedRows {
  std::string path;
  std::shared_ptr<parquet::FileMetaData> footer;
  std::shared_ptr<ParquetBlocks> blocks;
  std::vector<ByteRange> ranges;
};

EpisodeReader::EpisodeReader(std::shared_ptr<const dataset::DatasetMetadata> metadata,
                             std::shared_ptr<const VideoIndex> index,
                             std::shared_ptr<Payload> payload, double tolerance_s)
    : metadata_(std::move(metadata)),
      index_(std::move(index)),
      payload_(std::move(payload)),
      tolerance_s_(tolerance_s),
      footers_(kFooterBytes) {
  check_internal(index_ || metadata_->video_keys().empty(), "videos need an index");
}

EpisodeSlice EpisodeReader::slice(std::int64_t episode, std::size_t camera) const {
  const dataset::VideoSegment& segment = metadata_->episodes().video(episode, camera);
  const std::string path = metadata_->video_path(episode, camera);
  if (!std::isfinite(segment.from_s) || !std::isfinite(segment.to_s) || segment.from_s < 0.0 ||
      segment.to_s <= segment.from_s)
    fail(
        "{}: episode {}, camera {}: from_timestamp {} and to_timestamp {} are not a range of times",
        payload_->describe(path), episode, metadata_->video_keys()[camera], segment.from_s,
        segment.to_s);
  return index_->slice(index_->file(path), segment.from_s, segment.to_s);
}

std::uint64_t EpisodeReader::reserved_bytes(std::int64_t episode) const {
  std::uint64_t bytes = 0;
  for (std::size_t camera = 0; camera < metadata_->video_keys().size(); ++camera)
    bytes = checked_add(bytes, slice(episode, camera).reserved_bytes, "bytes of an episode");
  return bytes;
}

std::uint64_t EpisodeReader::reserved_bytes_bound(std::int64_t episode) const {
  std::uint64_t bytes = 0;
  for (std::size_t camera = 0; camera < metadata_->video_keys().size(); ++camera) {
    const std::size_t file = index_->file(metadata_->video_path(episode, camera));
    bytes = checked_add(bytes, index_->reserved_bytes_bound(file), "bytes of an episode");
  }
  return bytes;
}

EpisodeReader::WantedVideo EpisodeReader::plan_video(std::int64_t episode,
                                                     std::size_t camera) const {
  const std::string& key = metadata_->video_keys()[camera];
  const dataset::VideoSegment& segment = metadata_->episodes().video(episode, camera);
  const EpisodeSlice slice = this->slice(episode, camera);
  WantedVideo wanted;
  wanted.path = metadata_->video_path(episode, camera);
  const video::Mp4Index whole = index_->samples(slice.file, slice.first_sample, slice.last_sample);
  const auto shape = metadata_->info().find(key)->sample_shape();
  if (whole.height != shape[1] || whole.width != shape[2])
    fail("{}: camera {}: frames are {}x{} (width x height), info.json declares {}x{}",
         payload_->describe(wanted.path), key, whole.width, whole.height, shape[2], shape[1]);

  // The slice has a margin on both sides that only decides what it reserves.
  const double frame_s = 1.0 / metadata_->info().fps;
  const double last_s =
      segment.from_s + static_cast<double>(metadata_->episodes().length(episode) - 1) * frame_s;
  const auto [first, last] =
      samples_of_frames(whole, segment.from_s, std::max(last_s, segment.to_s - frame_s));
  wanted.index = index_->samples(slice.file, slice.first_sample + first, slice.first_sample + last);
  const video::SampleTable& samples = wanted.index.samples;
  std::uint64_t begin = samples.offset(0);
  std::uint64_t end = begin;
  for (std::size_t sample = 0; sample < samples.size(); ++sample) {
    begin = std::min(begin, samples.offset(sample));
    end = std::max(end, checked_add<std::uint64_t>(samples.offset(sample), samples.bytes(sample),
                                                   wanted.path + ": end of a sample"));
  }
  if (begin < slice.byte_offset || end > slice.byte_offset + slice.byte_length)
    fail(
        "{}: episode {}: its samples lie at bytes {} to {}, outside of its slice {} to {}; delete "
        "the MP4 index of this dataset and start again",
        payload_->describe(wanted.path), episode, begin, end, slice.byte_offset,
        slice.byte_offset + slice.byte_length);
  wanted.byte_offset = begin;
  wanted.bytes = PageMemory(end - begin);
  return wanted;
}

std::shared_ptr<parquet::FileMetaData> EpisodeReader::footer(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto* found = footers_.find(path)) return *found;
  }
  const dataset::ParquetFile file(read_footer_blocks(*payload_, path), payload_->describe(path));
  const std::lock_guard lock(mutex_);
  return footers_.insert(path, file.footer(), file.footer()->size());
}

EpisodeReader::WantedRows EpisodeReader::plan_rows(std::int64_t episode) {
  WantedRows wanted;
  wanted.path = metadata_->data_path(episode);
  wanted.footer = footer(wanted.path);
  wanted.blocks = std::make_shared<ParquetBlocks>(payload_->size(wanted.path));
  const dataset::ParquetFile file(wanted.blocks, payload_->describe(wanted.path), wanted.footer);
  std::vector<dataset::ParquetFile::Extent> extents;
  for (int group : dataset::FrameTable::groups_of_episode(file, episode)) {
    const auto extent = file.extent_of_group(group);
    if (!extents.empty() && extents.back().end == extent.begin)
      extents.back().end = extent.end;
    else
      extents.push_back(extent);
  }
  for (const auto& extent : extents)
    wanted.ranges.push_back(wanted.blocks->add_block(wanted.path, extent.begin, extent.end));
  return wanted;
}

std::shared_ptr<const FetchedEpisode> EpisodeReader::fetch(std::int64_t episode) {
  WantedRows rows = plan_rows(episode);
  std::vector<WantedVideo> videos;
  for (std::size_t camera = 0; camera < metadata_->video_keys().size(); ++camera)
    videos.push_back(plan_video(episode, camera));
  std::vector<ByteRange> ranges = rows.ranges;
  for (WantedVideo& video : videos)
    ranges.push_back({video.path, video.byte_offset, video.bytes.bytes()});
  try {
    payload_->read(ranges);
  } catch (const Error& error) {
    fail("episode {}: {}", episode, error.what());
  }

  auto fetched = std::make_shared<FetchedEpisode>();
  fetched->table = dataset::FrameTable::load_episode(
      *metadata_, episode,
      dataset::ParquetFile(rows.blocks, payload_->describe(rows.path), rows.footer));
  for (WantedVideo& video : videos) {
    fetched->payload_bytes += video.bytes.size();
    fetched->videos.push_back(
        std::make_shared<const FetchedVideo>(payload_->describe(video.path), std::move(video.index),
                                             video.byte_offset, std::move(video.bytes)));
  }
  check_frames(episode, *fetched);
  return fetched;
}

void EpisodeReader::check_frames(std::int64_t episode, const FetchedEpisode& fetched) const {
  if (fetched.videos.empty()) return;
  const std::vector<float>& timestamps = fetched.table.column("timestamp").floats();
  for (std::size_t camera = 0; camera < fetched.videos.size(); ++camera) {
    const double from_s = metadata_->episodes().video(episode, camera).from_s;
    for (std::size_t frame = 0; frame < timestamps.size(); ++frame) {
      try {
        video::find_sample(*fetched.videos[camera], from_s + double{timestamps[frame]},
                           tolerance_s_);
      } catch (const video::FrameNotFound& error) {
        fail(
            "{}: episode {}, camera {}, frame {}: no frame within {} s of {} s (from_timestamp {} "
            "+ timestamp {}); the nearest one is at {} s",
            fetched.videos[camera]->name(), episode, metadata_->video_keys()[camera], frame,
            tolerance_s_, error.asked_s(), from_s, timestamps[frame], error.nearest_s());
      }
    }
  }
}

}  // namespace lerobot::streaming
