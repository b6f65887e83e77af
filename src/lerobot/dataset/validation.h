// What can be known about a dataset's files before the first frame is read.
#pragma once

#include <span>

#include "lerobot/dataset/frame_table.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/video/video_file.h"

namespace lerobot::dataset {

/// Throws Error when a data or video file of the selected episodes is missing or a Git LFS pointer,
/// naming the episode that needs it and how many more files are missing.
void check_files_present(const DatasetMetadata& metadata, std::span<const std::int64_t> episodes);

/// Opens and indexes every video of the frames in `table` and asks the index for each of them.
/// Throws Error with file, episode, camera and both numbers when
/// - a file is no MP4, was cut short, or has another size than info.json declares,
/// - an episode's segment is not a range of times, ends more than a frame beyond the end of the
/// file,
///   is shorter than the episode, or overlaps the segment of another selected episode by more than
///   a frame,
/// - a frame's time has no frame of the video within `tolerance_s`.
void check_videos(const DatasetMetadata& metadata, const FrameTable& table, double tolerance_s,
                  video::VideoFileCache& files);

}  // namespace lerobot::dataset
