#include "tests/support/hub_routes.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "lerobot/hub/url.h"

namespace lerobot::test_server {
namespace {

using Segments = std::vector<std::string>;

/// The segments of a path as sent, each decoded: a quoted '/' is part of one.
Segments segments_of(const std::string& raw_path) {
  Segments segments;
  for (std::size_t at = 1; at <= raw_path.size();) {
    const std::size_t end = std::min(raw_path.find('/', at), raw_path.size());
    segments.push_back(hub::percent_decode(raw_path.substr(at, end - at)));
    at = end + 1;
  }
  return segments;
}

std::optional<hub::RepoType> type_of(const std::string& plural) {
  if (plural == "models") return hub::RepoType::kModel;
  if (plural == "datasets") return hub::RepoType::kDataset;
  if (plural == "buckets") return hub::RepoType::kBucket;
  return std::nullopt;
}

/// What may follow the id of a repository.
bool is_action(const std::string& segment) {
  constexpr std::array kActions = {
      "revision", "refs",   "tree", "paths-info",     "commits",         "auth-check", "preupload",
      "commit",   "branch", "tag",  "xet-read-token", "xet-write-token", "settings",   "resolve"};
  return std::find(kActions.begin(), kActions.end(), segment) != kActions.end();
}

/// Reads the id at `at` and what follows. Old repositories have a name only.
RepoCall repo_call(const HubState& state, const Request& request, hub::RepoType type,
                   const Segments& segments, std::size_t at) {
  RepoCall call{request, Caller(state, request), {type, {}}, {}, {}};
  const bool name_only = segments.size() == at + 1 || is_action(segments[at + 1]);
  call.repo.id = name_only ? segments[at] : segments[at] + "/" + segments[at + 1];
  std::size_t rest = at + (name_only ? 1 : 2);
  if (rest < segments.size()) call.action = segments[rest++];
  call.rest.assign(segments.begin() + static_cast<std::ptrdiff_t>(std::min(rest, segments.size())),
                   segments.end());
  return call;
}

std::optional<Answer> answer_api(HubState& state, const Request& request,
                                 const Segments& segments) {
  if (auto answer = answer_account(state, request)) return answer;
  if (segments.size() < 3) return std::nullopt;
  if (segments[1] == "resolve-cache" && segments.size() >= 6) {
    const auto type = type_of(segments[2]);
    if (!type) return std::nullopt;
    // The commit stands where other addresses have an action.
    RepoCall call = repo_call(state, request, *type, segments, 3);
    return answer_resolve_cache(state, call);
  }
  const auto type = type_of(segments[1]);
  if (!type) return std::nullopt;
  const RepoCall call = repo_call(state, request, *type, segments, 2);
  if (type == hub::RepoType::kBucket) return answer_bucket(state, call);
  for (const auto& routes : {answer_read, answer_refs, answer_upload})
    if (auto answer = routes(state, call)) return answer;
  return std::nullopt;
}

/// Addresses of pages, files and large-file storage: models have no prefix there.
std::optional<Answer> answer_pages(HubState& state, const Request& request,
                                   const Segments& segments) {
  const auto prefixed = type_of(segments[0]);
  const std::size_t at = prefixed && segments[0] != "models" ? 1 : 0;
  if (segments.size() <= at) return std::nullopt;
  RepoCall call = repo_call(state, request, at ? *prefixed : hub::RepoType::kModel, segments, at);
  if (call.repo.type == hub::RepoType::kBucket) {
    if (call.action == "resolve") return answer_bucket_resolve(state, call);
    return std::nullopt;
  }
  if (call.repo.id.ends_with(".git") && call.action == "info") {
    call.repo.id.resize(call.repo.id.size() - std::string_view(".git").size());
    return answer_lfs(state, call);
  }
  return answer_resolve(state, call);
}

/// The new name of a repository that was renamed, or is spelt otherwise; empty: none.
std::string new_id(const HubState& state, const hub::Repo& repo) {
  if (const auto at = state.renamed.find(repo); at != state.renamed.end()) return at->second;
  const std::string lower = lower_case(repo.id);
  for (const auto& [other, repository] : state.repositories)
    if (other.type == repo.type && lower_case(other.id) == lower) return other.id;
  return {};
}

[[noreturn]] void redirect_to_new_name(const RepoCall& call, const std::string& id) {
  std::string target = call.request.raw_path;
  const std::size_t at = target.find(call.repo.id);
  if (at != std::string::npos) target.replace(at, call.repo.id.size(), id);
  if (!call.request.query.empty()) target += "?" + call.request.query;
  throw Refusal({307, {{"Location", target}}, "Temporary Redirect. Redirecting to " + target});
}

}  // namespace

std::string RepoCall::path(std::size_t first) const {
  std::string path;
  for (std::size_t i = first; i < rest.size(); ++i) path += (i > first ? "/" : "") + rest[i];
  return path;
}

void refuse_unknown(const RepoCall& call) {
  // To nobody, what is private and what isn't there look the same.
  if (!call.caller.has_token() && call.caller.is_anonymous())
    refuse(401, "", "Invalid username or password.");
  refuse(404, "RepoNotFound",
         call.repo.type == hub::RepoType::kBucket ? "Bucket not found" : "Repository not found");
}

Repository& seen_repository(HubState& state, const RepoCall& call) {
  const auto at = state.repositories.find(call.repo);
  if (at != state.repositories.end() && call.caller.may_see(call.repo.id, at->second.is_private))
    return at->second;
  if (at == state.repositories.end())
    if (const std::string id = new_id(state, call.repo); !id.empty())
      redirect_to_new_name(call, id);
  refuse_unknown(call);
}

Repository& own_repository(HubState& state, const RepoCall& call) {
  Repository& repository = seen_repository(state, call);
  call.caller.check_write(call.repo.id);
  return repository;
}

Bucket& seen_bucket(HubState& state, const RepoCall& call) {
  const auto at = state.buckets.find(call.repo.id);
  if (at == state.buckets.end() || !call.caller.may_see(call.repo.id, at->second.is_private))
    refuse_unknown(call);
  return at->second;
}

Bucket& own_bucket(HubState& state, const RepoCall& call) {
  Bucket& bucket = seen_bucket(state, call);
  call.caller.check_write(call.repo.id);
  return bucket;
}

const Commit& seen_commit(const Repository& repository, const std::string& revision) {
  const Commit* commit = repository.find(revision);
  if (!commit) refuse(404, "RevisionNotFound", fmt::format("Invalid rev id: {}", revision));
  return *commit;
}

void check_gate(const Repository& repository, const RepoCall& call) {
  if (!repository.is_gated || (call.caller.account() && call.caller.owns(call.repo.id))) return;
  const std::string what =
      fmt::format("Access to {} {} is restricted.",
                  call.repo.type == hub::RepoType::kDataset ? "dataset" : "model", call.repo.id);
  if (!call.caller.has_token())
    refuse(401, "GatedRepo",
           what + " You must have access to it and be authenticated to access it. Please log in.");
  refuse(403, "GatedRepo",
         what + " You are not in the authorized list. Visit its page to ask for access.");
}

Answer page_answer(const HubState& state, const Request& request, const Json& all,
                   std::size_t largest) {
  const auto number = [&](const char* name, std::size_t value) {
    const std::string text = form_field(request.query, name);
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const std::size_t size = std::max<std::size_t>(
      1, std::min({largest, state.page_size, number("limit", state.page_size)}));
  const std::size_t begin = std::min(number("cursor", 0), all.size());
  const std::size_t end = std::min(begin + size, all.size());
  Answer answer = json_answer(Json(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                   all.begin() + static_cast<std::ptrdiff_t>(end)));
  if (end == all.size()) return answer;
  std::string next = state.hub_url + request.raw_path + "?";
  for (const auto& [name, value] : form_fields(request.query))
    if (name != "cursor")
      next += fmt::format("{}={}&", hub::percent_encode(name), hub::percent_encode(value));
  answer.headers.emplace_back("Link", fmt::format("<{}cursor={}>; rel=\"next\"", next, end));
  return answer;
}

Answer answer_hub(HubState& state, const Request& request) {
  const Segments segments = segments_of(request.raw_path);
  try {
    std::optional<Answer> answer;
    if (!segments.empty())
      answer = segments[0] == "api" ? answer_api(state, request, segments)
                                    : answer_pages(state, request, segments);
    if (answer) return *answer;
    refuse(404, "", fmt::format("No such route: {} {}", request.method, request.path));
  } catch (const Refusal& refusal) {
    return refusal.answer();
  }
}

}  // namespace lerobot::test_server
