// The meta/ folder of a dataset behind HTTP, as files on this machine.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "lerobot/base/file_lock.h"
#include "lerobot/hub/range_client.h"

namespace lerobot::streaming {

struct MetadataMirrorOptions {
  /// hub::lerobot_home(); the copy lies in its folder streaming-metadata.
  std::filesystem::path lerobot_home;
  /// How long another process that copies the same dataset is waited for.
  std::chrono::duration<double> lock_timeout{1800.0};
  /// Called now and then during that wait; may throw to give up.
  std::function<void()> waiting;
};

/// A complete copy that no other process changes while this object lives: open it
/// (dataset::DatasetMetadata::open(root, ...)), then let go.
struct MetadataMirror {
  std::filesystem::path root;  ///< holds meta/
  FileLock lock;
};

/// Copies info.json, stats.json (if there is one), tasks.parquet and
/// episodes/chunk-XXX/file-YYY.parquet from `root_url`/meta. There is no listing: episode files are
/// asked for in order until one is missing, chunks likewise. Every start asks anew; files whose
/// ETag the server confirms stay (ranks that waited for one copy share it). The copy is replaced as
/// a whole, so that a failure leaves the one before. Throws Error naming the URL or file: not a
/// LeRobotDataset v3, transfer failed, cache not writable, lock not had in time.
MetadataMirror mirror_metadata(const std::string& root_url, hub::RangeClient& client,
                               const MetadataMirrorOptions& options);

/// Where the copy of `root_url` lies: streaming-metadata/NAME-DIGEST.
std::filesystem::path metadata_mirror_path(const std::filesystem::path& lerobot_home,
                                           const std::string& root_url);

}  // namespace lerobot::streaming
