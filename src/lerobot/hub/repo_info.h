// What a repository holds: commits, branches, tags, files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo.h"

namespace lerobot::hub {

/// The commit that a branch, tag or (abbreviated) commit names now. A full commit is returned
/// without a question. `once`: an unreachable Hub is an error after one attempt, for callers who
/// have something to fall back on. Throws HubError.
std::string resolve_commit(HubClient& client, const Repo& repo, const std::string& revision,
                           bool once = false);

/// False when the Hub says that there is no such repository for this token (a gated one exists).
/// Throws HubError when it can't be asked.
bool repo_exists(HubClient& client, const Repo& repo);

struct Ref {
  std::string name;  ///< "main", "v3.0"
  std::string commit;
};
struct Refs {
  std::vector<Ref> branches;
  std::vector<Ref> tags;
};
Refs list_refs(HubClient& client, const Repo& repo);

struct RepoFile {
  std::string path = {};  ///< from the repository's root, with '/'
  std::uint64_t size = 0;
  std::string blob_id = {};  ///< SHA-1 as git has it; of a large file, of its pointer
  std::optional<std::string> lfs_sha256 = {};  ///< of a large file's content
  std::optional<std::string> xet_hash = {};

  /// The name of the blob in the cache, which is its ETag: lfs_sha256, else blob_id.
  const std::string& etag() const { return lfs_sha256 ? *lfs_sha256 : blob_id; }
  bool operator==(const RepoFile&) const = default;
};
/// All files of a commit, below `folder` (empty: everywhere), sorted by path. Paths that leave the
/// repository, absolute ones, and sizes or hashes that are none throw HubError kMisbehaved.
std::vector<RepoFile> list_files(HubClient& client, const Repo& repo, const std::string& commit,
                                 const std::string& folder = "");

/// What is wrong with a file that a listing tells of; nullopt for a good one.
std::optional<std::string> fault_of(const RepoFile& file);

}  // namespace lerobot::hub
