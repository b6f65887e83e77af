#include "lerobot/video/video_file.h"

#include <algorithm>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::video {
namespace {

MappedFile map_video(const std::filesystem::path& path) {
  if (is_git_lfs_pointer(path))
    fail("{}: is a Git LFS pointer, not the video itself; run: git lfs pull", path.string());
  MappedFile mapping(path);
  if (mapping.size() == 0)
    fail("{}: is empty, expected an MP4 file; copy or download it again", path.string());
  return mapping;
}

Mp4Index index_mapping(const MappedFile& mapping, const std::string& name) {
  SpanReader reader(mapping.bytes(), name);
  return Mp4Index::parse(reader);
}

}  // namespace

std::shared_ptr<const VideoFile> VideoFile::open(const std::filesystem::path& path) {
  return std::shared_ptr<const VideoFile>(new VideoFile(path, map_video(path)));
}

VideoFile::VideoFile(const std::filesystem::path& path, MappedFile mapping)
    : path_(path),
      name_(path.string()),
      mapping_(std::move(mapping)),
      index_(index_mapping(mapping_, name_)) {
  const std::size_t last = index_.sample_of_frame(index_.frame_count() - 1);
  first_time_s_ = index_.presentation_time(index_.sample_of_frame(0));
  last_time_s_ = index_.presentation_time(last);
  end_time_s_ =
      static_cast<double>(index_.presentation_ticks(last) + index_.samples.duration(last)) /
      index_.time_scale;
}

double VideoFile::average_frame_rate() const {
  return duration_s() > 0.0 ? static_cast<double>(frame_count()) / duration_s() : 0.0;
}

VideoFileCache::VideoFileCache(std::size_t capacity)
    : capacity_(std::max<std::size_t>(capacity, 1)) {}

std::shared_ptr<const VideoFile> VideoFileCache::open(const std::filesystem::path& path) {
  const std::string key = path.string();
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_path_.find(key); found != by_path_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return recent_.front();
    }
  }
  // Opened outside the lock: other threads go on with files that are open already.
  std::shared_ptr<const VideoFile> file = VideoFile::open(path);
  std::shared_ptr<const VideoFile> closing;  // unmapped after the lock is released
  const std::lock_guard lock(mutex_);
  if (const auto found = by_path_.find(key); found != by_path_.end()) return *found->second;
  recent_.push_front(file);
  by_path_.emplace(key, recent_.begin());
  if (recent_.size() > capacity_) {
    closing = std::move(recent_.back());
    by_path_.erase(closing->path().string());
    recent_.pop_back();
  }
  return file;
}

std::size_t VideoFileCache::size() const {
  const std::lock_guard lock(mutex_);
  return recent_.size();
}

}  // namespace lerobot::video
