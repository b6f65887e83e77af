// Downloading: the wanted files of one commit, into the cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/path_patterns.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/transfer_log.h"

namespace lerobot::hub {

struct SnapshotOptions {
  /// Only what lies below this folder is listed: for a few files of a large repository. Empty: all
  /// is, and the cache keeps the listing. A folder that isn't there is HubError kEntryNotFound.
  std::string folder = {};
  /// Which files, by their paths in the repository; null: all.
  std::function<bool(std::string_view path)> wanted = {};
  /// Called several times a second on the calling thread, and at the end; may throw to give up.
  /// Bytes that were in the cache already don't count.
  std::function<void(const TransferProgress&)> progress = {};
};

struct Snapshot {
  std::filesystem::path folder;  ///< CACHE/datasets--OWNER--NAME/snapshots/COMMIT
  std::string commit;
};

/// Brings the wanted files of `revision` into `cache` and returns where they are. One listing, then
/// a GET for each file that is missing, several at a time; a large file in parts. Content is hashed
/// on the way (SHA-256 of large files, git's SHA-1 of others) and a file appears only when size and
/// hash are right. What a broken download left behind is continued, also by a later process. The
/// second call for a commit asks nothing; for a branch or tag only which commit it is. Without any
/// file that is wanted the folder need not exist.
///
/// When the Hub can't be reached (HubError kUnreachable) or must not be (kOffline), what the cache
/// holds of the revision is used, with a warning unless offline, if it is complete; else HubError
/// naming what is missing. Of a snapshot whose listing the cache doesn't have (older clients wrote
/// none) completeness can't be told: it is used when it holds any wanted file. A refusal (401, 403,
/// 404) is never hidden.
///
/// Throws HubError, and Error for a cache that can't be written (with what to do when the disk is
/// full). After an exception, also of `progress`, no transfer of this call is under way.
Snapshot download_snapshot(HubClient& client, const Repo& repo, const std::string& revision,
                           const std::filesystem::path& cache, const SnapshotOptions& options = {});

/// A line in the log at most every two seconds: "Fetching NAME: 12/200 files, 1.2/4.0 GB, 98 MB/s".
std::function<void(const TransferProgress&)> log_download(const std::string& name);

}  // namespace lerobot::hub
