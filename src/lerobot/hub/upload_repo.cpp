#include <algorithm>
#include <chrono>
#include <thread>

#include "lerobot/base/error.h"
#include "lerobot/hub/repo_info.h"
#include "lerobot/hub/upload.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

/// The Hub's answer while another call makes the same repository is worth a few more tries.
constexpr std::string_view kBusy = "another conflicting operation is in progress";
constexpr int kMostAttempts = 5;
constexpr std::chrono::milliseconds kBusyWait{500};

Json creation(const Repo& repo, std::optional<bool> is_private) {
  const std::size_t slash = repo.id.find('/');
  Json body;
  body["name"] = slash == std::string::npos ? repo.id : repo.id.substr(slash + 1);
  body["organization"] = slash == std::string::npos ? Json() : Json(repo.id.substr(0, slash));
  if (is_private) body["visibility"] = *is_private ? "private" : "public";
  if (repo.type == RepoType::kDataset) body["type"] = "dataset";
  return body;
}

bool is_busy(const HubError& error) {
  return std::string_view(error.what()).find(kBusy) != std::string_view::npos;
}

/// Without the right to create repositories, in one's own name or another's, one that is there will
/// do.
bool may_be_there(const HubError& error) {
  return error.status() == 401 || error.status() == 402 || error.status() == 403;
}

/// nullopt: it was there.
std::optional<std::string> try_to_create(HubClient& client, const Repo& repo,
                                         std::optional<bool> is_private) {
  const Subject subject{.repo = repo, .action = "create the repository"};
  try {
    const Json answer = client.call_json({.method = "POST",
                                          .url = client.endpoint() + "/api/repos/create",
                                          .body = creation(repo, is_private).dump(),
                                          .content_type = "application/json"},
                                         subject);
    return text_field(answer, "url", subject);
  } catch (const HubError& error) {
    if (error.fault() == HubFault::kConflict && !is_busy(error)) return std::nullopt;
    if (may_be_there(error) && repo_exists(client, repo)) return std::nullopt;
    throw;
  }
}

bool has_ref(const std::vector<Ref>& refs, const std::string& name) {
  return std::any_of(refs.begin(), refs.end(),
                     [&name](const Ref& ref) { return ref.name == name; });
}

void create_ref(HubClient& client, const std::string& url, const Json& body,
                const Subject& subject) {
  try {
    client.call(
        {.method = "POST", .url = url, .body = body.dump(), .content_type = "application/json"},
        subject);
  } catch (const HubError& error) {
    if (error.fault() != HubFault::kConflict) throw;  // a conflict: it is there
  }
}

}  // namespace

std::string create_repo(HubClient& client, const Repo& repo, std::optional<bool> is_private) {
  check_internal(repo.type != RepoType::kBucket, "a Bucket is no repository");
  for (int attempt = 1;; ++attempt) {
    try {
      return try_to_create(client, repo, is_private).value_or(page_url(client.endpoint(), repo));
    } catch (const HubError& error) {
      if (!is_busy(error) || attempt == kMostAttempts) throw;
    }
    std::this_thread::sleep_for(kBusyWait * attempt);
  }
}

void create_branch(HubClient& client, const Repo& repo, const std::string& branch,
                   const std::string& starting_point) {
  Json body = Json::object();
  if (!starting_point.empty()) body["startingPoint"] = starting_point;
  try {
    create_ref(
        client,
        fmt::format("{}/branch/{}", api_url(client.endpoint(), repo), percent_encode(branch)), body,
        {.repo = repo,
         .revision = starting_point,
         .action = fmt::format("create the branch {}", branch)});
  } catch (const HubError& error) {
    // Who may not create one may still write to one that is there.
    if (error.fault() != HubFault::kForbidden) throw;
    if (!has_ref(list_refs(client, repo).branches, branch)) throw;
  }
}

void create_tag(HubClient& client, const Repo& repo, const std::string& tag,
                const std::string& revision) {
  create_ref(client,
             fmt::format("{}/tag/{}", api_url(client.endpoint(), repo), percent_encode(revision)),
             Json::object({{"tag", tag}}),
             {.repo = repo, .revision = revision, .action = fmt::format("create the tag {}", tag)});
}

}  // namespace lerobot::hub
