// Files: small ones from the Hub itself, large ones from the storage.
#include <fmt/format.h>

#include "lerobot/hub/url.h"
#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

std::string plural(hub::RepoType type) {
  switch (type) {
    case hub::RepoType::kModel:
      return "models";
    case hub::RepoType::kDataset:
      return "datasets";
    case hub::RepoType::kBucket:
      return "buckets";
  }
  return {};
}

std::string content_type(const std::string& path) {
  return path.ends_with(".json") ? "application/json" : "text/plain; charset=utf-8";
}

/// Refuses with 404 EntryNotFound, which tells the commit that lacks the file.
const RepoFile& seen_file(const Commit& commit, const std::string& path) {
  const auto at = commit.tree.find(path);
  if (at == commit.tree.end())
    refuse(404, "EntryNotFound", "Entry not found", {{"X-Repo-Commit", commit.id}});
  return *at->second;
}

}  // namespace

Answer redirect_to_storage(const HubState& state, const std::string& path, std::uint64_t size,
                           const std::string& etag, Headers headers) {
  const std::string url = state.signed_url(path);
  headers.emplace_back("Location", url);
  headers.emplace_back("X-Linked-Size", std::to_string(size));
  headers.emplace_back("X-Linked-ETag", fmt::format("\"{}\"", etag));
  headers.emplace_back("Accept-Ranges", "bytes");
  headers.emplace_back("Content-Type", "text/plain; charset=utf-8");
  return {302, std::move(headers), "Found. Redirecting to " + url};
}

void add_xet_headers(const HubState& state, const RepoCall& call, const std::string& xet_hash,
                     const std::string& revision, Headers& headers) {
  std::string token_url = hub::api_url(state.hub_url, call.repo) + "/xet-read-token";
  if (!revision.empty()) token_url += "/" + revision;
  headers.emplace_back("X-Xet-Hash", xet_hash);
  headers.emplace_back(
      "Link",
      fmt::format(
          "<{}>; rel=\"xet-auth\", <{}/v1/reconstructions/{}>; rel=\"xet-reconstruction-info\"",
          token_url, state.xet_url, xet_hash));
}

std::optional<Answer> answer_resolve(HubState& state, const RepoCall& call) {
  const bool is_read = call.method() == "GET" || call.method() == "HEAD";
  if (!is_read || call.action != "resolve" || call.rest.size() < 2) return std::nullopt;
  const Repository& repository = seen_repository(state, call);
  const Commit& commit = seen_commit(repository, call.rest[0]);
  check_gate(repository, call);
  const std::string path = call.path(1);
  const RepoFile& file = seen_file(commit, path);
  const std::string quoted = fmt::format("\"{}\"", file.etag());
  Headers headers = {{"X-Repo-Commit", commit.id}};
  if (call.request.header("if-none-match") == quoted) {
    headers.emplace_back("ETag", quoted);
    return Answer{304, std::move(headers), {}};
  }
  if (file.is_large()) {
    if (!file.xet_hash.empty()) add_xet_headers(state, call, file.xet_hash, commit.id, headers);
    return redirect_to_storage(state, "/large/" + file.sha256, file.content.size(), file.sha256,
                               std::move(headers));
  }
  headers.emplace_back("ETag", quoted);
  const std::string target =
      fmt::format("/api/resolve-cache/{}/{}/{}/{}?{}&etag=%22{}%22", plural(call.repo.type),
                  call.repo.id, commit.id, hub::percent_encode(path),
                  hub::percent_encode(call.request.raw_path) + "=", file.etag());
  headers.emplace_back("Location", target);
  return Answer{307, std::move(headers), "Temporary Redirect. Redirecting to " + target};
}

Answer answer_resolve_cache(HubState& state, const RepoCall& call) {
  const Repository& repository = seen_repository(state, call);
  const Commit& commit = seen_commit(repository, call.action);
  check_gate(repository, call);
  const std::string path = call.path(0);
  const RepoFile& file = seen_file(commit, path);
  return content_answer(call.request, file.content,
                        {{"X-Repo-Commit", commit.id},
                         {"ETag", fmt::format("\"{}\"", file.etag())},
                         {"Content-Type", content_type(path)},
                         {"Cache-Control", "public, max-age=3600"}});
}

}  // namespace lerobot::test_server
