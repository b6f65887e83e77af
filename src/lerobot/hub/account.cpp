#include "lerobot/hub/account.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/repo_info.h"

namespace lerobot::hub {
namespace {

std::string text_of(const Json& object, const char* name) {
  const Json value = object.is_object() ? object.value(name, Json()) : Json();
  return value.is_string() ? value.get<std::string>() : "";
}

/// "read", "write", or what newer tokens say; empty when it isn't told.
std::string role_of(const Json& account) {
  const Json auth = account.is_object() ? account.value("auth", Json()) : Json();
  return text_of(auth.is_object() ? auth.value("accessToken", Json()) : Json(), "role");
}

/// In whose names repositories can be created.
std::vector<std::string> names_of(const Json& account) {
  std::vector<std::string> names = {text_of(account, "name")};
  const Json organizations = account.is_object() ? account.value("orgs", Json()) : Json();
  if (organizations.is_array())
    for (const Json& organization : organizations) names.push_back(text_of(organization, "name"));
  return names;
}

void check_owner(HubClient& client, const Repo& repo, const Json& account) {
  const std::string owner = repo.id.substr(0, repo.id.find('/'));
  const std::vector<std::string> names = names_of(account);
  if (std::find(names.begin(), names.end(), owner) != names.end() || repo_exists(client, repo))
    return;
  fail(
      "cannot publish to {}: there is no such repository, and the token from {} can create some "
      "for {} only",
      describe(repo), client.environment().credentials.origin, fmt::join(names, ", "));
}

void check_visibility(HubClient& client, const Repo& repo) {
  if (!repo_exists(client, repo)) return;
  const Json info = client.call_json({.url = api_url(client.endpoint(), repo)}, {.repo = repo});
  if (info.is_object() && info.value("private", Json()) == false)
    fail(
        "cannot publish to {} in private: it is there and public; change its visibility at {}, or "
        "choose another name",
        describe(repo), page_url(client.endpoint(), repo) + "/settings");
}

}  // namespace

void check_may_publish(HubClient& client, const Repo& repo, std::optional<bool> is_private) {
  const Credentials& credentials = client.environment().credentials;
  if (client.environment().offline) fail_offline({.repo = repo, .action = "publish"});
  if (!credentials.token) fail("cannot publish to {}: {}", describe(repo), credentials.describe());
  try {
    const Json account = client.call_json({.url = client.endpoint() + "/api/whoami-v2"},
                                          {.repo = repo, .action = "publish"});
    if (role_of(account) == "read")
      fail("cannot publish to {}: the token from {} may only read; use one with write permission",
           describe(repo), credentials.origin);
    if (repo.type == RepoType::kBucket) return;
    check_owner(client, repo, account);
    if (is_private == true) check_visibility(client, repo);
  } catch (const HubError& error) {
    if (error.fault() == HubFault::kUnauthorized)
      fail("cannot publish to {}: the token from {} is not valid ({})", describe(repo),
           credentials.origin, error.what());
    if (error.fault() != HubFault::kUnreachable) throw;
    log::warning("The Hub can't be reached now; publishing is tried when the time comes: {}",
                 error.what());
  }
}

}  // namespace lerobot::hub
