// Where the coded frames of every video file of a dataset lie: the sidecar, as the reader uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lerobot/video/mp4_index.h"

namespace lerobot::streaming {

/// An episode's part of one video file.
struct EpisodeSlice {
  std::size_t file = 0;  ///< number in the index
  /// Samples [first_sample, last_sample] in decode order: from a keyframe before the episode to the
  /// end of a group of pictures after it.
  std::size_t first_sample = 0;
  std::size_t last_sample = 0;
  /// The bytes that hold them; foreign bytes between them are included.
  std::uint64_t byte_offset = 0;
  std::uint64_t byte_length = 0;
  /// What the slice counts in the byte budget: the exact size of the MP4 file that LeRobot
  /// synthesizes from it. It decides the order of admissions, hence of samples.
  std::uint64_t reserved_bytes = 0;
};

/// Read-only view of an installed index; memory-mapped, shared by ranks. Immutable, thread-safe.
class VideoIndex {
 public:
  virtual ~VideoIndex() = default;

  /// The number of a file by its path relative to the dataset's root. Throws Error naming the path
  /// when the index has no such file.
  virtual std::size_t file(std::string_view path) const = 0;
  virtual std::string_view path(std::size_t file) const = 0;
  virtual std::uint64_t file_bytes(std::size_t file) const = 0;
  /// An upper bound of reserved_bytes of any slice of the file, without a look at its samples.
  virtual std::uint64_t reserved_bytes_bound(std::size_t file) const = 0;
  /// The slice of [from_s, to_s] seconds. Costs a few probes, not a scan, for files without
  /// reordering. Throws Error for a range that is none.
  virtual EpisodeSlice slice(std::size_t file, double from_s, double to_s) const = 0;
  /// Samples [first, last] of a file as an index of their own, with the presentation times of the
  /// whole file: sample i of it is sample first + i of the file, and offsets are those in the file.
  virtual video::Mp4Index samples(std::size_t file, std::size_t first, std::size_t last) const = 0;
};

}  // namespace lerobot::streaming
