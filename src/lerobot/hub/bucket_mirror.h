// A copy of a part of a Bucket on this machine.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "lerobot/base/file_lock.h"
#include "lerobot/hub/bucket.h"
#include "lerobot/hub/range_client.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/snapshot.h"

namespace lerobot::hub {

struct BucketMirrorOptions {
  std::function<void(const TransferProgress&)> progress = {};
  /// How long another process that copies the same Bucket is waited for.
  std::chrono::duration<double> lock_timeout{1800.0};
  /// Called now and then during that wait; may throw to give up.
  std::function<void()> waiting = {};
};

/// Makes FOLDER/PREFIX what `listing` says about the objects below `prefix`: those whose size and
/// hash the folder's record (.bucket.json) confirms stay, others are fetched, and files that the
/// Bucket doesn't have are deleted. A file appears only when it is complete and has the hash of the
/// listing. The lock, on .FOLDER.lock beside the folder, is returned: no other process changes the
/// copy while it is held. Throws Error naming the file: transfer failed, other content, disk full,
/// lock not had in time.
FileLock mirror_bucket(const std::string& endpoint, const Repo& bucket,
                       std::span<const BucketFile> listing, const std::string& prefix,
                       const std::filesystem::path& folder, RangeClient& client,
                       const BucketMirrorOptions& options = {});

/// Fetches one object into `file`, which appears when it is complete.
void fetch_bucket_file(const std::string& endpoint, const Repo& bucket, const BucketFile& object,
                       const std::filesystem::path& file, RangeClient& client);

}  // namespace lerobot::hub
