// What a sidecar says: whose videos it describes, and the frame of each video's index. The numbers
// of every sample are in sidecar_file.h.
//
// Format: schema 3, shared with LeRobot (docs/sidecars.md). A sidecar covers the whole dataset, and
// belongs to it only while identity and sources agree.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/dataset/dataset_files.h"
#include "lerobot/streaming/payload.h"

namespace lerobot::streaming {

inline constexpr int kSidecarSchema = 3;

/// A video file that the dataset refers to.
struct SourceFile {
  std::string path;  ///< relative to the data root
  /// nullopt: not known yet, any size will do.
  std::optional<std::uint64_t> size;
  bool operator==(const SourceFile&) const = default;
};

/// Which dataset, at which place and in which state, a sidecar describes.
struct SidecarIdentity {
  std::string repo_id;
  std::string revision;
  /// Payload root: a URI, or a local directory (see local_data_root()).
  std::string data_root;
  /// Sorted by path, each path once.
  std::vector<SourceFile> sources;
  /// Path -> what tells one content from another. For every source or for none.
  std::map<std::string, std::string> fingerprints;
};

/// One video of a sidecar without its samples.
struct SidecarVideo {
  std::string path;
  std::uint64_t size = 0;
  std::vector<std::uint8_t> file_type_box;  ///< 'ftyp' with its header
  std::uint64_t moov_offset = 0;
  std::uint64_t mdat_offset = 0;
  std::uint64_t mdat_payload_offset = 0;
  std::uint64_t mdat_payload_size = 0;
  bool faststart = false;
  std::string codec;  ///< four characters
  std::uint32_t timescale = 0;
  std::uint64_t duration = 0;  ///< ticks
  std::uint32_t track_id = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> sample_description;  ///< body of 'stsd'
};

struct SidecarManifest {
  SidecarIdentity identity;
  std::vector<SidecarVideo> videos;  ///< sorted by path
};

/// The JSON text of a manifest, as Python's json.dumps gives it.
std::string to_json_text(const SidecarManifest& manifest);
/// Reads and checks it; `name` stands for the file in messages. Throws Error for another schema, a
/// wrong type, videos that are not the sources, or paths that leave the data root.
SidecarManifest parse_manifest(std::string_view text, std::string_view name);

/// Whether `data_root` names a Hub dataset at one commit: hf://datasets/OWNER/NAME@SHA[/...].
bool is_pinned(std::string_view data_root);
/// A local directory as data_root records it: absolute, "~" expanded, without "." and "..".
std::string local_data_root(const std::filesystem::path& directory);

/// Why `found` does not describe `expected`; nullopt when it does. The revision does not count
/// where the data root is pinned; sizes count where they are known.
std::optional<std::string> stale_reason(const SidecarIdentity& found,
                                        const SidecarIdentity& expected);
/// A digest of what stale_reason() compares but for the sizes: equal digests and sizes mean valid.
std::string identity_digest(const SidecarIdentity& identity);

/// Paths of every video of the first `episodes` episodes (all of them by default), sorted.
std::vector<std::string> video_paths(const dataset::DatasetFiles& dataset,
                                     std::optional<std::int64_t> episodes = std::nullopt);

/// What a sidecar of the dataset has to say now. Asks the payload for sizes and fingerprints, up to
/// `workers` at a time; for a pinned data root it asks nothing, the commit is the identity. A place
/// without fingerprints gets random ones, so that its sidecar is made anew at every start. Throws
/// Error for an empty repo_id or revision, and for a file that is missing.
SidecarIdentity expected_identity(std::string repo_id, std::string revision, std::string data_root,
                                  const std::vector<std::string>& paths, Payload& payload,
                                  int workers);

/// Where the cache keeps the sidecar: LEROBOT_HOME/streaming-sidecars/REPO/NAME.
std::filesystem::path sidecar_cache_path(const std::filesystem::path& lerobot_home,
                                         const SidecarIdentity& identity);
/// The file name in it: mp4-v3-REVISION-DIGEST.npz. A published sidecar has the name that results
/// from the source commit as revision.
std::string sidecar_file_name(const SidecarIdentity& identity);

}  // namespace lerobot::streaming
