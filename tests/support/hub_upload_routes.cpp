// Before a commit: which files are large ones, and their way into the storage.
#include <algorithm>
#include <fnmatch.h>
#include <sstream>

#include <fmt/format.h>

#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

constexpr std::size_t kMostFiles = 256;

/// The patterns of a .gitignore, of which the Hub needs little here: one a line, '#' comments.
std::vector<std::string> ignore_patterns(const std::string& text) {
  std::vector<std::string> patterns;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line[0] != '#') patterns.push_back(line);
  return patterns;
}

/// A pattern without '/' is about the last segment, one that ends with '/' about a folder.
bool is_ignored(const std::string& path, std::string pattern) {
  if (pattern.ends_with('/')) {
    return path.starts_with(pattern) || path.find("/" + pattern) != std::string::npos;
  }
  const bool whole = pattern.find('/') != std::string::npos;
  if (pattern.starts_with('/')) pattern.erase(0, 1);
  const std::string subject = whole ? path : path.substr(path.rfind('/') + 1);
  return ::fnmatch(pattern.c_str(), subject.c_str(), FNM_PATHNAME) == 0;
}

void check_no_pull_request(const Request& request) {
  if (form_field(request.query, "create_pr") == "1")
    refuse(400, "", "The test Hub has no pull requests");
}

Answer preupload(HubState& state, const RepoCall& call) {
  check_no_pull_request(call.request);
  const Commit& head = seen_commit(own_repository(state, call), call.path(0));
  const Json body = json_body(call.request);
  const Json asked = body.value("files", Json::array());
  if (asked.size() > kMostFiles)
    refuse(413, "", fmt::format("At most {} files a call", kMostFiles));
  const auto patterns = ignore_patterns(body.value("gitIgnore", ""));
  Json files = Json::array();
  for (const Json& file : asked) {
    if (!file.contains("path") || !file.contains("size") || !file.contains("sample"))
      refuse(400, "", "\"files\" need path, sample and size");
    const std::string path = file["path"];
    const bool ignored =
        std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return is_ignored(path, pattern); });
    const bool large = state.is_large(path, file["size"].get<std::uint64_t>());
    Json entry = {
        {"path", path}, {"uploadMode", large ? "lfs" : "regular"}, {"shouldIgnore", ignored}};
    if (const auto at = head.tree.find(path); at != head.tree.end())
      entry["oid"] = at->second->etag();
    files.push_back(entry);
  }
  return json_answer({{"files", files}, {"commitOid", head.id}});
}

/// Upload addresses of one object.
Json upload_actions(HubState& state, const RepoCall& call, const std::string& sha256,
                    std::uint64_t size, bool may_be_parts) {
  Json upload;
  if (may_be_parts && state.multipart_size > 0 && size > state.multipart_size) {
    const std::string id = fmt::format("upload{}", ++state.counter);
    state.partial[id] = {size, state.multipart_size, {}};
    Json header = {{"chunk_size", std::to_string(state.multipart_size)}};
    const std::uint64_t count = (size + state.multipart_size - 1) / state.multipart_size;
    for (std::uint64_t part = 1; part <= count; ++part)
      header[fmt::format("{:05}", part)] =
          state.signed_url(fmt::format("/uploads/{}/{}/{}", sha256, id, part));
    upload = {{"href", state.signed_url(fmt::format("/uploads/{}/{}/complete", sha256, id))},
              {"header", header}};
  } else {
    upload = {{"href", state.signed_url("/uploads/" + sha256)},
              {"header", {{"X-Upload-Object", sha256}}}};
  }
  const std::string verify =
      hub::page_url(state.hub_url, call.repo) + ".git/info/lfs/objects/verify";
  return {{"upload", upload}, {"verify", {{"href", verify}}}};
}

bool has_sha256(const Json& object) {
  const std::string oid = object.value("oid", "");
  return oid.size() == 64 && oid.find_first_not_of("0123456789abcdef") == std::string::npos &&
         object.contains("size") && object["size"].is_number_unsigned();
}

Json batch_object(HubState& state, const RepoCall& call, const Json& object, bool may_be_parts) {
  if (!has_sha256(object))
    return {{"oid", object.value("oid", "")},
            {"size", object.value("size", 0)},
            {"error", {{"code", 422}, {"message", "oid or size is not valid"}}}};
  const std::string sha256 = object["oid"];
  Json entry = {{"oid", sha256}, {"size", object["size"]}, {"authenticated", true}};
  if (!state.uploaded_file(sha256))
    entry["actions"] = upload_actions(state, call, sha256, object["size"], may_be_parts);
  return entry;
}

Answer batch(HubState& state, const RepoCall& call) {
  own_repository(state, call);
  const Json body = json_body(call.request);
  if (body.value("operation", "") != "upload")
    refuse(422, "", "The test Hub takes uploads only; files are read through resolve");
  const Json objects = body.value("objects", Json::array());
  if (objects.size() > kMostFiles)
    refuse(413, "", fmt::format("At most {} objects a call", kMostFiles));
  const Json transfers = body.value("transfers", Json::array({"basic"}));
  const bool may_be_parts =
      std::find(transfers.begin(), transfers.end(), "multipart") != transfers.end();
  Json entries = Json::array();
  bool parts = false;
  for (const Json& object : objects) {
    entries.push_back(batch_object(state, call, object, may_be_parts));
    parts = parts || entries.back().dump().find("chunk_size") != std::string::npos;
  }
  Answer answer = json_answer({{"transfer", parts ? "multipart" : "basic"}, {"objects", entries}});
  set_header(answer.headers, "Content-Type", "application/vnd.git-lfs+json");
  return answer;
}

Answer verify(HubState& state, const RepoCall& call) {
  own_repository(state, call);
  const Json body = json_body(call.request);
  const auto file = state.uploaded_file(body.value("oid", ""));
  if (!file) refuse(404, "", "The object was not uploaded");
  if (body.value("size", std::uint64_t{0}) != file->content.size())
    refuse(400, "", fmt::format("The object has {} bytes", file->content.size()));
  return json_answer(Json::object());
}

}  // namespace

std::optional<Answer> answer_upload(HubState& state, const RepoCall& call) {
  if (call.action == "xet-read-token" || call.action == "xet-write-token")
    return answer_xet_token(state, call);
  if (call.method() == "PUT" && call.action == "settings") {
    Repository& repository = own_repository(state, call);
    const Json body = json_body(call.request);
    if (body.contains("visibility")) repository.is_private = body["visibility"] == "private";
    if (body.contains("private")) repository.is_private = body["private"].get<bool>();
    if (body.contains("gated")) repository.is_gated = body["gated"] != false;
    return json_answer(Json::object());
  }
  if (call.method() != "POST") return std::nullopt;
  if (call.action == "preupload") return preupload(state, call);
  if (call.action == "commit") {
    check_no_pull_request(call.request);
    return answer_commit(state, call);
  }
  return std::nullopt;
}

Answer answer_lfs(HubState& state, const RepoCall& call) {
  const std::string route = call.method() + " " + call.path(0);
  if (route == "POST lfs/objects/batch") return batch(state, call);
  if (route == "POST lfs/objects/verify") return verify(state, call);
  refuse(404, "", "No such route of git");
}

}  // namespace lerobot::test_server
