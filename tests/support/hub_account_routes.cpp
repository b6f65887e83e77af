// Who am I; making, moving and removing repositories.
#include <fmt/format.h>

#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

Answer who_am_i(const HubState& state, const Request& request) {
  const Caller caller(state, request);
  if (caller.is_anonymous()) refuse(401, "", "Invalid username or password.");
  Json organizations = Json::array();
  bool may_write = true;
  if (const HubAccount* account = caller.account()) {
    may_write = account->may_write;
    for (const std::string& name : account->organizations)
      organizations.push_back({{"type", "org"}, {"name", name}, {"fullname", name}});
  }
  return json_answer({{"type", "user"},
                      {"id", "000000000000000000000001"},
                      {"name", caller.user()},
                      {"fullname", caller.user()},
                      {"email", caller.user() + "@users.example"},
                      {"emailVerified", true},
                      {"canPay", false},
                      {"isPro", false},
                      {"periodEnd", nullptr},
                      {"avatarUrl", "/avatars/" + caller.user()},
                      {"orgs", organizations},
                      {"auth",
                       {{"type", "access_token"},
                        {"accessToken",
                         {{"displayName", "token of " + caller.user()},
                          {"role", may_write ? "write" : "read"},
                          {"createdAt", "2026-01-01T00:00:00.000Z"}}}}}});
}

std::string text(const Json& body, const char* name) {
  const auto at = body.find(name);
  return at != body.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::string_view type_name(hub::RepoType type) {
  return type == hub::RepoType::kDataset ? "dataset" : "model";
}

/// The type that a body names: left out, a model.
hub::RepoType type_in(const Json& body) {
  const std::string type = text(body, "type");
  if (type.empty() || type == "model") return hub::RepoType::kModel;
  if (type == "dataset") return hub::RepoType::kDataset;
  refuse(400, "", fmt::format("The test Hub has no repositories of type \"{}\"", type));
}

std::string gitattributes() {
  std::string lines;
  for (const char* pattern : {"*.bin", "*.npz", "*.parquet", "*.mp4", "*.safetensors"})
    lines += fmt::format("{} filter=lfs diff=lfs merge=lfs -text\n", pattern);
  return lines;
}

Answer create(HubState& state, const Request& request) {
  const Caller caller(state, request);
  if (caller.is_anonymous()) refuse(401, "", "Invalid username or password.");
  const Json body = json_body(request);
  const std::string name = text(body, "name");
  if (name.empty()) refuse(400, "", "name is missing");
  const std::string owner = text(body, "organization");
  const hub::Repo repo{type_in(body), (owner.empty() ? caller.user() : owner) + "/" + name};
  if (!hub::is_repo_id(repo.type, repo.id)) refuse(400, "", "Invalid repo name: " + repo.id);
  if (!caller.owns(repo.id))
    refuse(403, "",
           fmt::format("You don't have the rights to create a {} under the namespace \"{}\"",
                       type_name(repo.type), owner));
  const std::string url = hub::page_url(state.hub_url, repo);
  if (state.repositories.contains(repo))
    return json_answer({{"error", fmt::format("You already created this {} repo: {}",
                                              type_name(repo.type), repo.id)},
                        {"url", url}},
                       409);
  caller.check_write(repo.id);
  const auto attributes =
      std::make_shared<const RepoFile>(RepoFile::regular(Bytes(gitattributes())));
  Repository repository(caller.user(), {{".gitattributes", attributes}});
  repository.is_private = text(body, "visibility") == "private" || body.value("private", false);
  state.repositories.emplace(repo, std::move(repository));
  return json_answer({{"url", url}, {"name", repo.id}, {"id", repo.id}});
}

Answer remove(HubState& state, const Request& request) {
  const Json body = json_body(request);
  const Caller caller(state, request);
  const std::string owner = text(body, "organization");
  const hub::Repo repo{type_in(body),
                       (owner.empty() ? caller.user() : owner) + "/" + text(body, "name")};
  const RepoCall call{request, caller, repo, {}, {}};
  own_repository(state, call);
  state.repositories.erase(repo);
  return json_answer(Json::object());
}

Answer move(HubState& state, const Request& request) {
  const Json body = json_body(request);
  const hub::Repo from{type_in(body), text(body, "fromRepo")};
  const hub::Repo to{from.type, text(body, "toRepo")};
  const RepoCall call{request, Caller(state, request), from, {}, {}};
  own_repository(state, call);
  call.caller.check_write(to.id);
  if (state.repositories.contains(to)) refuse(409, "", "Repository already exists: " + to.id);
  auto node = state.repositories.extract(from);
  node.key() = to;
  state.repositories.insert(std::move(node));
  state.renamed[from] = to.id;
  return json_answer(Json::object());
}

/// The front matter is taken as it is; only an unclosed one is an error.
Answer validate_card(const Request& request) {
  const std::string card = text(json_body(request), "content");
  Json errors = Json::array();
  if (card.starts_with("---\n") && card.find("\n---", 3) == std::string::npos)
    errors.push_back({{"message", "the front matter has no end"}});
  const int status = errors.empty() ? 200 : 400;
  return json_answer({{"errors", errors}, {"warnings", Json::array()}}, status);
}

}  // namespace

std::optional<Answer> answer_account(HubState& state, const Request& request) {
  const std::string route = request.method + " " + request.path;
  if (route == "GET /api/agent-harnesses") refuse(404, "", "Not found");
  if (route == "GET /api/whoami-v2") return who_am_i(state, request);
  if (route == "POST /api/validate-yaml") return validate_card(request);
  if (route == "POST /api/repos/create") return create(state, request);
  if (route == "DELETE /api/repos/delete") return remove(state, request);
  if (route == "POST /api/repos/move") return move(state, request);
  return std::nullopt;
}

}  // namespace lerobot::test_server
