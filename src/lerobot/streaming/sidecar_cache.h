// From a dataset to its installed index: what a run does before it can stream.
//
//   cached and valid?  -> use it
//   take the lock      -> cached and valid now? use it
//   published one?     -> check, convert, install
//   build it           -> check, convert, install
//
// Whatever fails or is interrupted leaves the file that was there. Processes that share the cache
// build once: the others wait for the lock.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "lerobot/base/error.h"
#include "lerobot/streaming/mapped_index.h"
#include "lerobot/streaming/payload.h"
#include "lerobot/streaming/sidecar.h"
#include "lerobot/streaming/sidecar_builder.h"

namespace lerobot::streaming {

/// Another process holds the sidecar's lock for too long.
class SidecarLockTimeout : public Error {
 public:
  using Error::Error;
};

struct SidecarCacheOptions {
  std::filesystem::path lerobot_home;
  /// --dataset.streaming_sidecar_lock_timeout_s
  double lock_timeout_s = 1800.0;
  /// Workers, probing, progress, and the poll that may throw to give up (also while waiting for the
  /// lock).
  SidecarBuildOptions build;
  /// Writes the published sidecar of this dataset to the given path; false when there is none. What
  /// it writes is checked like any other. Unset: nothing is looked for.
  std::function<bool(const std::filesystem::path&)> fetch_published;
};

/// The index of the dataset's videos, from the cache if it is valid, else made. Throws
/// SidecarLockTimeout, and Error when the cache can't be used (permissions, full disk) or a video
/// can't be indexed.
std::shared_ptr<const MappedIndex> prepare_sidecar(const SidecarIdentity& expected,
                                                   Payload& payload,
                                                   const SidecarCacheOptions& options);

}  // namespace lerobot::streaming
