// Sidecar archives: NPZ files with a manifest and six arrays a video (docs/sidecars.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/base/files.h"
#include "lerobot/serialization/deflated_zip_writer.h"
#include "lerobot/serialization/zip_archive.h"
#include "lerobot/streaming/episode_slice.h"
#include "lerobot/streaming/sidecar.h"

namespace lerobot::streaming {

/// The samples of one video in decode order, as the archive has them.
struct SidecarArrays {
  std::vector<double> pts;                        ///< seconds
  std::vector<std::int64_t> durations;            ///< ticks
  std::vector<std::int64_t> composition_offsets;  ///< ticks
  std::vector<std::int64_t> sizes;                ///< bytes
  std::vector<std::int64_t> offsets;              ///< bytes from the file's beginning
  std::vector<std::int64_t> sync_samples;         ///< sample numbers, ascending
  /// Only where an edit list hides frames or begins between two: what FFmpeg presents then differs
  /// from pts. In a member of our own, which other readers do not look for.
  std::optional<video::Presentation> presentation;

  /// The arrays as columns, described. A view of this object.
  TrackSamples view(const SidecarVideo& video) const;
};

/// The frame and the samples of a parsed file. `path` and `size` are those of the source.
SidecarVideo sidecar_video(const video::Mp4Index& index, std::string path, std::uint64_t size);
SidecarArrays sidecar_arrays(const video::Mp4Index& index);

/// Throws Error naming the first thing that is impossible: lengths that differ, no samples, times
/// that are no numbers, samples outside the file, sync samples that do not ascend.
void check_arrays(const SidecarVideo& video, const SidecarArrays& arrays, std::string_view name);

/// SHA-256 of an archive's directory, which has name, size and CRC of every member: it changes with
/// the content. Hexadecimal. Throws Error when the file is no archive.
std::string content_digest(const std::filesystem::path& path);

/// A sidecar on disk, mapped. Thread-safe.
class SidecarFile {
 public:
  /// Reads directory and manifest. Throws Error naming the file when either is damaged,
  /// SystemError when the file can't be opened.
  explicit SidecarFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const SidecarManifest& manifest() const { return manifest_; }
  /// The samples of manifest().videos[video], checked. Throws Error naming the member.
  SidecarArrays arrays(std::size_t video) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  serialization::ZipReader zip_;
  SidecarManifest manifest_;
};

/// One video's arrays, compressed: what the archive has as "{i}/sample_pts.npy" and so on.
struct CompressedArrays {
  struct Member {
    std::string name;  ///< without "{i}/"
    serialization::DeflatedContent content;
  };
  std::vector<Member> members;
};
CompressedArrays compress(const SidecarArrays& arrays);

}  // namespace lerobot::streaming
