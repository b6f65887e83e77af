// The objects of a Bucket: mutable, without revisions, last write wins.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/upload.h"

namespace lerobot::hub {

struct BucketFile {
  std::string path;  ///< from the Bucket's root, with '/'
  std::uint64_t size = 0;
  std::string xet_hash;  ///< of the content, 64 hexadecimal digits: what tells two contents apart
  std::optional<std::string> uploaded_at;
  bool operator==(const BucketFile&) const = default;
};

/// Every object below `prefix` (a folder; empty: all), sorted by path. The Hub matches prefixes as
/// text; neighbours such as logs_x for logs are left out here. Throws HubError.
std::vector<BucketFile> list_bucket(HubClient& client, const Repo& bucket,
                                    const std::string& prefix = "");

/// Puts files into a Bucket, replacing those of the same paths: their bytes go through Xet, then
/// one call for every 1000 files adds them. Files that the Bucket holds as they are aren't sent.
/// Throws HubError, also when the Hub reports that some of the files failed, naming them (the
/// others are there then), and Error as upload_commit() does.
void upload_to_bucket(HubClient& client, const Repo& bucket, std::span<const UploadFile> files,
                      const UploadOptions& options = {});

}  // namespace lerobot::hub
