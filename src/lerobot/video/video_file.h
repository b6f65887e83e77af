// A local MP4 file: its mapping and its index.
#pragma once

#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lerobot/base/files.h"
#include "lerobot/video/packet_source.h"

namespace lerobot::video {

/// An opened video. Immutable and thread-safe; holds a mapping and no file descriptor.
class VideoFile final : public PacketSource {
 public:
  /// Maps and indexes `path`. Throws Error naming the file when it is missing, a Git LFS pointer,
  /// not an MP4, cut short, or of a kind that is not supported, and saying what to do.
  static std::shared_ptr<const VideoFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  int width() const { return index_.width; }
  int height() const { return index_.height; }
  /// "h264", "hevc" or "av1", as info.json has it under video.codec.
  std::string_view codec_name() const { return video::codec_name(index_.codec); }
  /// Frames that are presented (an edit list may hide some).
  std::int64_t frame_count() const { return static_cast<std::int64_t>(index_.frame_count()); }
  /// Frames a second over the whole presentation; 0 when the file states no durations.
  double average_frame_rate() const;
  /// Presentation time of the first and of the last frame, seconds.
  double first_time_s() const { return first_time_s_; }
  double last_time_s() const { return last_time_s_; }
  /// When the last frame ends, seconds: first_time_s() + duration_s().
  double end_time_s() const { return end_time_s_; }
  /// From the beginning of the first to the end of the last frame, seconds.
  double duration_s() const { return end_time_s_ - first_time_s_; }

  std::string_view name() const override { return name_; }
  const Mp4Index& index() const override { return index_; }
  std::span<const std::uint8_t> packet(std::size_t sample) const override {
    return mapping_.bytes().subspan(index_.samples.offset(sample), index_.samples.bytes(sample));
  }

 private:
  VideoFile(const std::filesystem::path& path, MappedFile mapping);

  std::filesystem::path path_;
  std::string name_;
  MappedFile mapping_;
  Mp4Index index_;
  double first_time_s_ = 0.0;
  double last_time_s_ = 0.0;
  double end_time_s_ = 0.0;
};

/// The most recently used videos, opened: at most `capacity` of them stay open (and those that
/// somebody still holds). Thread-safe.
class VideoFileCache {
 public:
  explicit VideoFileCache(std::size_t capacity);

  /// The opened file at `path`. Throws what VideoFile::open() throws.
  std::shared_ptr<const VideoFile> open(const std::filesystem::path& path);
  /// Files that the cache itself keeps open.
  std::size_t size() const;

 private:
  using Recent = std::list<std::shared_ptr<const VideoFile>>;

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  Recent recent_;  // most recently used first
  std::unordered_map<std::string, Recent::iterator> by_path_;
};

}  // namespace lerobot::video
