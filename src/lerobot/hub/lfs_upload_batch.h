// The question where large objects may be put: git-lfs's batch API.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lerobot/hub/lfs_upload.h"

namespace lerobot::hub {

inline constexpr const char* kLfsContentType = "application/vnd.git-lfs+json";

/// An address that something is sent to.
struct LfsTarget {
  std::string url;
  std::vector<std::string> headers;  ///< to go with it
  /// With parts, each is put to an address of its own, all but the last of `part_size` bytes, and
  /// `url` puts them together.
  std::vector<std::string> parts;
  std::uint64_t part_size = 0;
};

struct LfsActions {
  LfsTarget upload;
  std::optional<LfsTarget> verify;
};

/// By the SHA-256 of each object; nullopt for what the storage has. Throws HubError, also for an
/// answer that doesn't fit the objects.
std::map<std::string, std::optional<LfsActions>> ask_lfs_batch(HubClient& client, const Repo& repo,
                                                               const std::string& branch,
                                                               std::span<const LfsObject> objects);

}  // namespace lerobot::hub
