// Content into a Xet storage: cut into chunks, packed into xorbs, described by shards.
#pragma once

#include <span>
#include <vector>

#include "lerobot/hub/upload_content.h"
#include "lerobot/hub/upload_progress.h"
#include "lerobot/hub/xet/xet_hash.h"
#include "lerobot/hub/xet/xet_server.h"

namespace lerobot::hub::xet {

/// A shard is sent when it describes as many chunks: 48 bytes each, and servers take 64 MiB.
inline constexpr std::size_t kChunksOfShard = 500'000;

/// The hash that the content has in Xet storages; zeros for no content.
XetHash content_hash(const UploadContent& content, const UploadMeter& meter);

/// Uploads contents one after the other and returns their hashes in the same order. A chunk that
/// occurs twice is sent once. One thread reads and hashes while up to three xorbs of 64 MiB are on
/// their way. Throws HubError, and Error for a file that can't be read or has changed.
std::vector<XetHash> upload_contents(XetServer& server,
                                     std::span<const UploadContent* const> contents,
                                     UploadMeter& meter,
                                     std::size_t chunks_of_shard = kChunksOfShard);

}  // namespace lerobot::hub::xet
