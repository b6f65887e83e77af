#include "lerobot/dataset/validation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/video/decoder.h"

namespace lerobot::dataset {
namespace {

/// Collects missing files, of which the first is told in full.
class MissingFiles {
 public:
  void check(const std::filesystem::path& path, std::int64_t episode, std::string_view camera) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) {
      if (is_git_lfs_pointer(path))
        fail("{}: is a Git LFS pointer; fetch the dataset's files with `git lfs pull`",
             path.string());
      return;
    }
    if (count_++ == 0)
      first_ = fmt::format("{}: is missing; episode {}{} needs it", path.string(), episode,
                           camera.empty() ? "" : fmt::format(", camera {}", camera));
  }

  void finish() const {
    if (count_ == 0) return;
    fail(
        "{}{}. Download the dataset's files again, or choose episodes whose files are there with "
        "--dataset.episodes",
        first_, count_ == 1 ? "" : fmt::format(" ({} more files are missing)", count_ - 1));
  }

 private:
  std::int64_t count_ = 0;
  std::string first_;
};

/// One camera of one dataset.
class CameraCheck {
 public:
  CameraCheck(const DatasetMetadata& metadata, const FrameTable& table, std::size_t camera,
              double tolerance_s)
      : metadata_(metadata),
        table_(table),
        camera_(camera),
        name_(metadata.video_keys()[camera]),
        frame_s_(1.0 / metadata.info().fps),
        tolerance_s_(tolerance_s) {}

  void run(video::VideoFileCache& files) const {
    std::map<FileIndex, std::vector<const FrameTable::Run*>> runs_by_file;
    for (const auto& run : table_.runs())
      runs_by_file[metadata_.episodes().video(run.episode, camera_).file].push_back(&run);
    for (const auto& [file, runs] : runs_by_file) {
      const auto video = files.open(metadata_.video_file(runs.front()->episode, camera_));
      check_size(*video);
      for (const auto* run : runs) {
        check_segment(*video, *run);
        check_frames(*video, *run);
      }
      check_overlaps(*video, runs);
    }
  }

 private:
  const VideoSegment& segment(std::int64_t episode) const {
    return metadata_.episodes().video(episode, camera_);
  }

  void check_size(const video::VideoFile& video) const {
    const auto shape = metadata_.info().find(name_)->sample_shape();
    if (video.height() != shape[1] || video.width() != shape[2])
      fail("{}: camera {}: frames are {}x{} (width x height), info.json declares {}x{}",
           video.name(), name_, video.width(), video.height(), shape[2], shape[1]);
  }

  void check_segment(const video::VideoFile& video, const FrameTable::Run& run) const {
    const auto [file, from_s, to_s] = segment(run.episode);
    const std::string where =
        fmt::format("{}: episode {}, camera {}", video.name(), run.episode, name_);
    if (!std::isfinite(from_s) || !std::isfinite(to_s) || from_s < 0.0 || to_s <= from_s)
      fail("{}: from_timestamp {} and to_timestamp {} are not a range of times", where, from_s,
           to_s);
    if (to_s > video.end_time_s() + frame_s_)
      fail("{}: the episode is at {} s to {} s, but the video ends at {} s", where, from_s, to_s,
           video.end_time_s());
    const auto frames = static_cast<double>(run.to - run.from);
    if (to_s - from_s < (frames - 1.5) * frame_s_)
      fail("{}: the episode has {} frames, but {} s to {} s is room for {} at {} fps", where,
           run.to - run.from, from_s, to_s, std::llround((to_s - from_s) / frame_s_),
           metadata_.info().fps);
  }

  void check_frames(const video::VideoFile& video, const FrameTable::Run& run) const {
    const std::vector<float>& timestamps = table_.column("timestamp").floats();
    const double from_s = segment(run.episode).from_s;
    for (std::int64_t frame = run.from; frame < run.to; ++frame) {
      const double timestamp = timestamps[static_cast<std::size_t>(run.position_of(frame))];
      try {
        video::find_sample(video, from_s + timestamp, tolerance_s_);
      } catch (const video::FrameNotFound& error) {
        fail(
            "{}: episode {}, camera {}, frame {}: no frame within {} s of {} s (from_timestamp {} "
            "+ "
            "timestamp {}); the nearest one is at {} s",
            video.name(), run.episode, name_, frame - run.from, tolerance_s_, error.asked_s(),
            from_s, timestamp, error.nearest_s());
      }
    }
  }

  void check_overlaps(const video::VideoFile& video,
                      std::vector<const FrameTable::Run*> runs) const {
    std::sort(runs.begin(), runs.end(), [&](const auto* a, const auto* b) {
      return segment(a->episode).from_s < segment(b->episode).from_s;
    });
    for (std::size_t i = 1; i < runs.size(); ++i) {
      const VideoSegment& before = segment(runs[i - 1]->episode);
      const VideoSegment& after = segment(runs[i]->episode);
      if (after.from_s >= before.to_s - frame_s_) continue;
      fail("{}: camera {}: episode {} begins at {} s, but episode {} ends at {} s: they overlap",
           video.name(), name_, runs[i]->episode, after.from_s, runs[i - 1]->episode, before.to_s);
    }
  }

  const DatasetMetadata& metadata_;
  const FrameTable& table_;
  std::size_t camera_;
  std::string name_;
  double frame_s_;
  double tolerance_s_;
};

}  // namespace

void check_files_present(const DatasetMetadata& metadata, std::span<const std::int64_t> episodes) {
  MissingFiles missing;
  const std::vector<std::string>& cameras = metadata.video_keys();
  std::set<FileIndex> data_seen;
  std::vector<std::set<FileIndex>> videos_seen(cameras.size());
  for (std::int64_t episode : episodes) {
    if (data_seen.insert(metadata.episodes().data_file(episode)).second)
      missing.check(metadata.data_file(episode), episode, {});
    for (std::size_t camera = 0; camera < cameras.size(); ++camera)
      if (videos_seen[camera].insert(metadata.episodes().video(episode, camera).file).second)
        missing.check(metadata.video_file(episode, camera), episode, cameras[camera]);
  }
  missing.finish();
}

void check_videos(const DatasetMetadata& metadata, const FrameTable& table, double tolerance_s,
                  video::VideoFileCache& files) {
  const std::size_t cameras = metadata.video_keys().size();
  for (std::size_t camera = 0; camera < cameras; ++camera)
    CameraCheck(metadata, table, camera, tolerance_s).run(files);
}

}  // namespace lerobot::dataset
