// The routes of the test Hub. A route is a function of the state (locked) and of a call; it returns
// an answer or throws a Refusal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/support/hub_state.h"

namespace lerobot::test_server {

/// A request for something in a repository or Bucket.
struct RepoCall {
  const Request& request;
  Caller caller;
  hub::Repo repo;                 ///< as it was asked for
  std::string action;             ///< the segment behind the id; empty: the repository itself
  std::vector<std::string> rest;  ///< decoded segments behind the action
  std::string method() const { return request.method; }
  /// The decoded segments from `first` on as a path.
  std::string path(std::size_t first) const;
};

/// The caller's repository. Refuses like the Hub: 404 RepoNotFound, 401 for nobody, 307 under
/// another name.
Repository& seen_repository(HubState& state, const RepoCall& call);
/// The same, and it may be changed.
Repository& own_repository(HubState& state, const RepoCall& call);
Bucket& seen_bucket(HubState& state, const RepoCall& call);
Bucket& own_bucket(HubState& state, const RepoCall& call);
[[noreturn]] void refuse_unknown(const RepoCall& call);
/// Refuses with 404 RevisionNotFound.
const Commit& seen_commit(const Repository& repository, const std::string& revision);
/// Refuses files of gated repositories.
void check_gate(const Repository& repository, const RepoCall& call);

/// One page of a listing, and the address of the next in Link.
Answer page_answer(const HubState& state, const Request& request, const Json& all,
                   std::size_t largest);

/// hub_read_routes.cpp: information, refs, trees, commits.
std::optional<Answer> answer_read(HubState& state, const RepoCall& call);
/// hub_resolve_routes.cpp: files.
std::optional<Answer> answer_resolve(HubState& state, const RepoCall& call);
Answer answer_resolve_cache(HubState& state, const RepoCall& call);
/// Where large content with this SHA-256, or of this file in Xet, can be fetched.
Answer redirect_to_storage(const HubState& state, const std::string& path, std::uint64_t size,
                           const std::string& etag, Headers headers);
/// The headers that tell a Xet client where to turn.
void add_xet_headers(const HubState& state, const RepoCall& call, const std::string& xet_hash,
                     const std::string& revision, Headers& headers);
/// hub_upload_routes.cpp: pre-upload, large-file storage, commits.
std::optional<Answer> answer_upload(HubState& state, const RepoCall& call);
Answer answer_lfs(HubState& state, const RepoCall& call);
/// hub_commit.cpp
Answer answer_commit(HubState& state, const RepoCall& call);
/// hub_ref_routes.cpp: branches and tags.
std::optional<Answer> answer_refs(HubState& state, const RepoCall& call);
/// hub_bucket_routes.cpp
Answer answer_bucket(HubState& state, const RepoCall& call);
Answer answer_bucket_resolve(HubState& state, const RepoCall& call);
/// hub_account_routes.cpp: who am I; making, moving and removing repositories. nullopt: no such
/// route.
std::optional<Answer> answer_account(HubState& state, const Request& request);
/// hub_xet_routes.cpp: tokens, and the server of Xet storage.
Answer answer_xet_token(HubState& state, const RepoCall& call);
Answer answer_xet(HubState& state, const Request& request);
/// hub_storage_routes.cpp: the host of presigned addresses.
Answer answer_storage(HubState& state, const Request& request);

/// Everything on the Hub's own host.
Answer answer_hub(HubState& state, const Request& request);

}  // namespace lerobot::test_server
