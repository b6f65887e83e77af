// The blobs of a snapshot, from the Hub into the cache.
//
// Worker threads take one blob after the other: lock, request, hash, write, rename, link. Each
// waits for its own transfer, which the client's one I/O thread carries. A large blob is fetched in
// parts by ranges, which several workers take; its blocks are written and hashed by the threads of
// a BlockWriter, so that the I/O thread only copies.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo_cache.h"
#include "lerobot/hub/snapshot.h"

namespace lerobot::hub {

/// A blob that is missing, and the snapshot's files that are to have its content.
struct MissingBlob {
  RepoFile file;  ///< one of them
  std::vector<std::string> paths;
};

/// Returns when all are there. Throws what SnapshotOptions and download_snapshot() promise; what
/// has arrived of large ones is then continued next time. `progress` may be null.
void download_blobs(HubClient& client, const RepoCache& cache, const std::string& commit,
                    std::vector<MissingBlob> blobs,
                    const std::function<void(const TransferProgress&)>& progress);

}  // namespace lerobot::hub
