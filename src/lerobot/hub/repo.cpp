#include "lerobot/hub/repo.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "lerobot/base/error.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

constexpr std::size_t kLongestId = 96;
constexpr std::size_t kCommitDigits = 40;

std::string_view type_name(RepoType type) {
  switch (type) {
    case RepoType::kModel:
      return "model";
    case RepoType::kDataset:
      return "dataset";
    case RepoType::kBucket:
      return "bucket";
  }
  return "";
}

/// Which rule `id` breaks; nullopt for a good one.
std::optional<std::string> fault_of(RepoType type, const std::string& id) {
  if (id.empty()) return "it is empty";
  if (id.size() > kLongestId) return fmt::format("it has more than {} characters", kLongestId);
  for (const char c : id) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 || !(std::isalnum(byte) || c == '.' || c == '_' || c == '-' || c == '/'))
      return "only letters, digits, '.', '_', '-' and one '/' are allowed";
  }
  const std::size_t slash = id.find('/');
  if (slash != id.rfind('/')) return "it has more than one '/'";
  if (slash == std::string::npos && type == RepoType::kBucket) return "its owner is missing";
  if (id.find("--") != std::string::npos || id.find("..") != std::string::npos)
    return "\"--\" and \"..\" are not allowed";
  const auto edge = [](char c) { return c == '.' || c == '-'; };
  const std::string name = id.substr(slash == std::string::npos ? 0 : slash + 1);
  const std::string owner = slash == std::string::npos ? "" : id.substr(0, slash);
  if (name.empty() || slash == 0) return "owner or name is empty";
  if (edge(name.front()) || edge(name.back())) return "the name begins or ends with '.' or '-'";
  if (!owner.empty() && (edge(owner.front()) || edge(owner.back())))
    return "the owner begins or ends with '.' or '-'";
  if (name.ends_with(".git")) return "the name ends with \".git\"";
  return std::nullopt;
}

}  // namespace

Repo make_repo(RepoType type, std::string id) {
  if (const auto fault = fault_of(type, id))
    fail_usage("\"{}\" is not the name of a {}: {}; expected OWNER/NAME", id, type_name(type),
               *fault);
  return {type, std::move(id)};
}

bool is_repo_id(RepoType type, const std::string& id) { return !fault_of(type, id); }

std::string describe(const Repo& repo) {
  return fmt::format("{} {}", type_name(repo.type), repo.id);
}

bool is_commit(std::string_view revision) {
  return revision.size() == kCommitDigits &&
         std::all_of(revision.begin(), revision.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string api_url(const std::string& endpoint, const Repo& repo) {
  return fmt::format("{}/api/{}s/{}", endpoint, type_name(repo.type), repo.id);
}

std::string page_url(const std::string& endpoint, const Repo& repo) {
  if (repo.type == RepoType::kModel) return fmt::format("{}/{}", endpoint, repo.id);
  return fmt::format("{}/{}s/{}", endpoint, type_name(repo.type), repo.id);
}

std::string resolve_url(const std::string& endpoint, const Repo& repo, std::string_view revision,
                        std::string_view path) {
  std::string url = page_url(endpoint, repo) + "/resolve";
  if (repo.type != RepoType::kBucket) url += "/" + percent_encode(revision);
  if (!path.empty()) url += "/" + percent_encode_path(path);
  return url;
}

std::string cache_folder_name(const Repo& repo) {
  std::string name = fmt::format("{}s--{}", type_name(repo.type), repo.id);
  if (const std::size_t slash = name.find('/'); slash != std::string::npos)
    name.replace(slash, 1, "--");
  return name;
}

}  // namespace lerobot::hub
