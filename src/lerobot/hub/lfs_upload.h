// The Hub's large-file storage: git-lfs's batch API with its basic transfer, and the Hub's own
// transfer in parts.
#pragma once

#include <span>
#include <string>

#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/upload_content.h"
#include "lerobot/hub/upload_progress.h"

namespace lerobot::hub {

struct LfsObject {
  const UploadContent* content = nullptr;
  std::string sha256;  ///< its name in the storage
};

/// Brings objects to the storage of a repository, several at a time. What it has already, also
/// from an upload that broke off, isn't sent. Throws HubError, and Error for a file that can't be
/// read or has changed.
void upload_lfs(HubClient& client, const Repo& repo, const std::string& branch,
                std::span<const LfsObject> objects, UploadMeter& meter);

}  // namespace lerobot::hub
