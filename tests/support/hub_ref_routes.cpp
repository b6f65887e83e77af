// Branches and tags.
#include <fmt/format.h>

#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

Answer done() { return json_answer(Json::object()); }

[[noreturn]] void refuse_ref(const std::string& name) {
  refuse(404, "RevisionNotFound", fmt::format("Invalid rev id: {}", name));
}

/// An empty body counts as {}.
Json options(const Request& request) {
  return request.content.size() == 0 ? Json::object() : json_body(request);
}

Answer create_branch(Repository& repository, const RepoCall& call) {
  const std::string name = call.path(0);
  const Json body = options(call.request);
  if (repository.branches.contains(name) && !body.value("overwrite", false))
    refuse(409, "", "Reference already exists");
  repository.branches[name] = seen_commit(repository, body.value("startingPoint", "main")).id;
  return done();
}

Answer delete_branch(Repository& repository, const std::string& name) {
  if (name == "main") refuse(403, "", "Forbidden: the main branch can't be deleted");
  if (repository.branches.erase(name) == 0) refuse_ref(name);
  return done();
}

Answer create_tag(Repository& repository, const RepoCall& call) {
  const Json body = options(call.request);
  const std::string name = body.value("tag", "");
  if (name.empty()) refuse(400, "", "\"tag\" is missing");
  const std::string& commit = seen_commit(repository, call.rest.empty() ? "main" : call.path(0)).id;
  if (repository.tags.contains(name)) refuse(409, "", "Reference already exists");
  repository.tags[name] = commit;
  return done();
}

Answer delete_tag(Repository& repository, const std::string& name) {
  if (repository.tags.erase(name) == 0) refuse_ref(name);
  return done();
}

}  // namespace

std::optional<Answer> answer_refs(HubState& state, const RepoCall& call) {
  const std::string route = call.method() + " " + call.action;
  if (route == "POST branch") return create_branch(own_repository(state, call), call);
  if (route == "DELETE branch") return delete_branch(own_repository(state, call), call.path(0));
  if (route == "POST tag") return create_tag(own_repository(state, call), call);
  if (route == "DELETE tag") return delete_tag(own_repository(state, call), call.path(0));
  return std::nullopt;
}

}  // namespace lerobot::test_server
