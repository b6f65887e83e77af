// What the Hub keeps: repositories of models and datasets, and Buckets; their names and addresses.
#pragma once

#include <string>
#include <string_view>

namespace lerobot::hub {

enum class RepoType {
  kModel,
  kDataset,
  kBucket,  ///< objects without revisions
};

struct Repo {
  RepoType type = RepoType::kModel;
  std::string id;  ///< OWNER/NAME; of old models and datasets also NAME
  bool operator==(const Repo&) const = default;
};

/// Checks `id` as the Hub does: at most 96 characters of A-Z a-z 0-9 . _ -, at most one '/', no
/// "--" or "..", a name that neither begins nor ends with '.' or '-' nor ends with ".git". Throws
/// UsageError that says which rule is broken. A Bucket needs its OWNER.
Repo make_repo(RepoType type, std::string id);
/// True when make_repo() would take it.
bool is_repo_id(RepoType type, const std::string& id);

/// "dataset OWNER/NAME".
std::string describe(const Repo& repo);

/// 40 lower-case hexadecimal digits: a revision that can't move.
bool is_commit(std::string_view revision);

/// ENDPOINT/api/datasets/OWNER/NAME
std::string api_url(const std::string& endpoint, const Repo& repo);
/// ENDPOINT/datasets/OWNER/NAME: the page, and the root of git and file addresses. Models have no
/// prefix there.
std::string page_url(const std::string& endpoint, const Repo& repo);
/// PAGE/resolve/REVISION/PATH; of a Bucket PAGE/resolve/PATH. An empty path gives the root under
/// which paths (percent-encoded) can be appended.
std::string resolve_url(const std::string& endpoint, const Repo& repo, std::string_view revision,
                        std::string_view path);

/// The folder of a cache: "datasets--OWNER--NAME".
std::string cache_folder_name(const Repo& repo);

}  // namespace lerobot::hub
