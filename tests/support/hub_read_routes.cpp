// What a repository holds: information, refs, trees, commits.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

constexpr std::size_t kMostEntries = 1000;
constexpr std::size_t kMostExpanded = 50;
constexpr std::size_t kMostPaths = 1000;

Json large_fields(const RepoFile& file, const char* hash_name) {
  return {
      {hash_name, file.sha256}, {"size", file.content.size()}, {"pointerSize", file.pointer_size}};
}

Json siblings(const Tree& tree, bool with_blobs) {
  Json all = Json::array();
  for (const auto& [path, file] : tree) {
    Json entry = {{"rfilename", path}};
    if (with_blobs) {
      entry["size"] = file->content.size();
      entry["blobId"] = file->blob_id;
      if (file->is_large()) entry["lfs"] = large_fields(*file, "sha256");
    }
    all.push_back(entry);
  }
  return all;
}

Answer information(HubState& state, const RepoCall& call, const std::string& revision) {
  const Repository& repository = seen_repository(state, call);
  const Commit& commit = seen_commit(repository, revision);
  const std::string owner = call.repo.id.substr(0, call.repo.id.find('/'));
  Json all = {
      {"_id", "000000000000000000000002"},
      {"id", call.repo.id},
      {"author", owner},
      {"sha", commit.id},
      {"lastModified", iso_time(commit.time)},
      {"private", repository.is_private},
      {"gated", repository.is_gated ? Json("auto") : Json(false)},
      {"disabled", false},
      {"tags", Json::array()},
      {"downloads", 0},
      {"likes", 0},
      {"cardData", Json::object()},
      {"createdAt", repository.created_at},
      {"siblings", siblings(commit.tree, form_field(call.request.query, "blobs") == "true")}};
  if (call.repo.type == hub::RepoType::kModel) all["modelId"] = call.repo.id;
  Json wanted = {{"_id", all["_id"]}, {"id", all["id"]}};
  bool expanded = false;
  for (const auto& [name, value] : form_fields(call.request.query)) {
    if (name != "expand") continue;
    expanded = true;
    if (all.contains(value)) wanted[value] = all[value];
  }
  return json_answer(expanded ? wanted : all);
}

Json ref_list(const std::map<std::string, std::string>& refs, const std::string& kind) {
  Json list = Json::array();
  for (const auto& [name, commit] : refs)
    list.push_back(
        {{"name", name}, {"ref", fmt::format("refs/{}/{}", kind, name)}, {"targetCommit", commit}});
  return list;
}

Answer refs(const Repository& repository, const Request& request) {
  Json all = {{"branches", ref_list(repository.branches, "heads")},
              {"tags", ref_list(repository.tags, "tags")},
              {"converts", Json::array()}};
  if (form_field(request.query, "include_prs") == "1") all["pullRequests"] = Json::array();
  return json_answer(all);
}

/// Makes the entries of a tree or of paths-info.
class Entries {
 public:
  Entries(const Repository& repository, const Commit& commit, bool expand)
      : repository_(repository), commit_(commit), expand_(expand) {}

  Json file(const std::string& path) const {
    const RepoFile& file = *commit_.tree.at(path);
    Json entry = {
        {"type", "file"}, {"oid", file.blob_id}, {"size", file.content.size()}, {"path", path}};
    if (file.is_large()) entry["lfs"] = large_fields(file, "oid");
    if (!file.xet_hash.empty()) entry["xetHash"] = file.xet_hash;
    if (expand_) {
      add_last_commit(entry, path);
      entry["securityFileStatus"] = {
          {"status", "safe"}, {"avScan", nullptr}, {"pickleImportScan", nullptr}};
    }
    return entry;
  }

  Json folder(const std::string& path) {
    if (ids_.empty()) ids_ = folder_ids(commit_.tree);
    Json entry = {{"type", "directory"}, {"oid", ids_.at(path)}, {"size", 0}, {"path", path}};
    if (expand_) add_last_commit(entry, first_file(path));
    return entry;
  }

  bool is_file(const std::string& path) const { return commit_.tree.contains(path); }
  bool is_folder(const std::string& path) const {
    const auto at = commit_.tree.lower_bound(path + "/");
    return at != commit_.tree.end() && at->first.starts_with(path + "/");
  }

 private:
  std::string first_file(const std::string& folder) const {
    return commit_.tree.lower_bound(folder + "/")->first;
  }

  void add_last_commit(Json& entry, const std::string& path) const {
    const Commit& last = repository_.last_change(commit_, path);
    entry["lastCommit"] = {{"id", last.id}, {"title", last.title}, {"date", iso_time(last.time)}};
  }

  const Repository& repository_;
  const Commit& commit_;
  const bool expand_;
  std::map<std::string, std::string> ids_;
};

Answer tree(const HubState& state, const Repository& repository, const RepoCall& call) {
  if (call.rest.empty()) refuse(404, "RevisionNotFound", "Invalid rev id: ");
  const Commit& commit = seen_commit(repository, call.rest[0]);
  const bool recursive = form_field(call.request.query, "recursive") == "true";
  const bool expand = form_field(call.request.query, "expand") == "true";
  Entries entries(repository, commit, expand);
  const std::string folder = call.path(1);
  if (!folder.empty() && !entries.is_folder(folder))
    refuse(404, "EntryNotFound", fmt::format("{} does not exist on \"{}\"", folder, call.rest[0]));
  const std::string prefix = folder.empty() ? "" : folder + "/";
  // Folders come before the files in them.
  std::set<std::string> folders;
  Json list = Json::array();
  for (auto at = commit.tree.lower_bound(prefix);
       at != commit.tree.end() && at->first.starts_with(prefix); ++at) {
    const std::string& path = at->first;
    std::size_t slash = path.find('/', prefix.size());
    for (; slash != std::string::npos; slash = path.find('/', slash + 1)) {
      if (folders.insert(path.substr(0, slash)).second)
        list.push_back(entries.folder(path.substr(0, slash)));
      if (!recursive) break;
    }
    if (slash == std::string::npos) list.push_back(entries.file(path));
  }
  return page_answer(state, call.request, list, expand ? kMostExpanded : kMostEntries);
}

struct PathsQuestion {
  std::vector<std::string> paths;
  bool expand = false;
};

/// Python's client sends a form, the one for JavaScript sends JSON.
PathsQuestion paths_question(const Request& request) {
  PathsQuestion question;
  if (request.header("content-type").starts_with("application/json")) {
    const Json body = json_body(request);
    for (const Json& path : body.value("paths", Json::array()))
      question.paths.push_back(path.get<std::string>());
    question.expand = body.value("expand", false);
    return question;
  }
  for (const auto& [name, value] : form_fields(request.content.text())) {
    if (name == "paths") question.paths.push_back(value);
    if (name == "expand") question.expand = lower_case(value) == "true";
  }
  return question;
}

Answer paths_info(const Repository& repository, const RepoCall& call) {
  const Commit& commit = seen_commit(repository, call.rest.empty() ? "main" : call.rest[0]);
  const PathsQuestion question = paths_question(call.request);
  if (question.paths.size() > kMostPaths) refuse(413, "", "Too many paths");
  Entries entries(repository, commit, question.expand);
  Json list = Json::array();
  for (const std::string& path : question.paths)
    if (entries.is_file(path))
      list.push_back(entries.file(path));
    else if (entries.is_folder(path))
      list.push_back(entries.folder(path));
  return json_answer(list);
}

Answer commits(const HubState& state, const Repository& repository, const RepoCall& call) {
  Json list = Json::array();
  const Commit& last = seen_commit(repository, call.rest.empty() ? "main" : call.rest[0]);
  for (const Commit* commit : repository.history(last))
    list.push_back({{"id", commit->id},
                    {"title", commit->title},
                    {"message", commit->description},
                    {"authors", Json::array({{{"user", commit->author}}})},
                    {"date", iso_time(commit->time)}});
  Answer answer = page_answer(state, call.request, list, kMostExpanded);
  answer.headers.emplace_back("X-Total-Count", std::to_string(list.size()));
  return answer;
}

}  // namespace

std::optional<Answer> answer_read(HubState& state, const RepoCall& call) {
  if (call.method() == "POST" && call.action == "paths-info")
    return paths_info(seen_repository(state, call), call);
  if (call.method() != "GET") return std::nullopt;
  if (call.action.empty()) return information(state, call, "main");
  if (call.action == "revision") return information(state, call, call.path(0));
  if (call.action == "refs") return refs(seen_repository(state, call), call.request);
  if (call.action == "tree") return tree(state, seen_repository(state, call), call);
  if (call.action == "commits") return commits(state, seen_repository(state, call), call);
  if (call.action == "auth-check") {
    if (call.path(0) == "write")
      own_repository(state, call);
    else
      check_gate(seen_repository(state, call), call);
    return json_answer("OK");
  }
  return std::nullopt;
}

}  // namespace lerobot::test_server
