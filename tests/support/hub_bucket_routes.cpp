// Buckets: objects under paths, the last write wins.
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

constexpr std::size_t kMostEntries = 1000;
constexpr std::size_t kMostOperations = 1000;

Answer create(HubState& state, const RepoCall& call) {
  const std::string& id = call.repo.id;
  if (call.caller.is_anonymous()) refuse(401, "", "Invalid username or password.");
  const std::string url = hub::page_url(state.hub_url, call.repo);
  if (state.buckets.contains(id))
    return json_answer({{"error", "You already created this bucket: " + id}, {"url", url}}, 409);
  call.caller.check_write(id);
  const Json body = call.request.content.size() == 0 ? Json::object() : json_body(call.request);
  const std::string now = iso_time(std::time(nullptr));
  const bool is_private = body.value("private", false) || body.value("visibility", "") == "private";
  state.buckets[id] = {is_private, now, now, {}};
  return json_answer({{"url", url}, {"name", id}, {"id", id}});
}

Json information(const std::string& id, const Bucket& bucket) {
  std::uint64_t size = 0;
  for (const auto& [path, object] : bucket.objects) size += object.content.size();
  return {{"_id", "000000000000000000000003"},
          {"id", id},
          {"author", id.substr(0, id.find('/'))},
          {"private", bucket.is_private},
          {"createdAt", bucket.created_at},
          {"updatedAt", bucket.updated_at},
          {"size", size},
          {"totalFiles", bucket.objects.size()}};
}

Json file_entry(const std::string& path, const BucketObject& object) {
  Json entry = {{"type", "file"},
                {"path", path},
                {"size", object.content.size()},
                {"xetHash", object.xet_hash},
                {"mtime", iso_time(static_cast<std::time_t>(object.modified_ms / 1000))},
                {"uploadedAt", object.uploaded_at}};
  if (!object.content_type.empty()) entry["contentType"] = object.content_type;
  return entry;
}

/// What begins with `prefix`, taken as text: "logs" finds "logs_old/a", too. Folders stand for what
/// is deeper than the prefix unless the listing is recursive, which has files alone.
Json listing(const Bucket& bucket, const std::string& prefix, bool recursive) {
  Json list = Json::array();
  std::set<std::string> folders;
  for (auto at = bucket.objects.lower_bound(prefix);
       at != bucket.objects.end() && at->first.starts_with(prefix); ++at) {
    const auto& [path, object] = *at;
    // The slash that ends the prefix as a folder's name belongs to it.
    std::size_t from = prefix.size();
    if (from > 0 && from < path.size() && path[from] == '/') ++from;
    const std::size_t slash = recursive ? std::string::npos : path.find('/', from);
    if (slash == std::string::npos) {
      list.push_back(file_entry(path, object));
    } else if (folders.insert(path.substr(0, slash)).second) {
      list.push_back({{"type", "directory"},
                      {"path", path.substr(0, slash)},
                      {"uploadedAt", object.uploaded_at}});
    }
  }
  return list;
}

Answer paths_info(const Bucket& bucket, const Request& request) {
  const Json paths = json_body(request).value("paths", Json::array());
  if (paths.size() > kMostEntries) refuse(413, "", "Too many paths");
  Json list = Json::array();
  for (const Json& path : paths)
    if (const auto at = bucket.objects.find(path.get<std::string>()); at != bucket.objects.end())
      list.push_back(file_entry(at->first, at->second));
  return json_answer(list);
}

/// The content that a hash of Xet storage names; nullopt: there is none.
std::optional<Bytes> content_of(const HubState& state, const std::string& xet_hash) {
  if (xet_hash == empty_xet_hash()) return Bytes();
  const XetFile* file = state.xet.file(xet_hash);
  return file ? std::optional(file->content) : std::nullopt;
}

/// Applies one line; returns what is wrong with it, empty: nothing.
std::string apply(const HubState& state, Bucket& bucket, const Json& line) {
  const std::string type = line.value("type", "");
  const std::string path = line.value("path", "");
  if (path.empty() || path.starts_with('/') || path.ends_with('/') ||
      ("/" + path + "/").find("/../") != std::string::npos)
    return "Invalid path";
  if (type == "deleteFile") return bucket.objects.erase(path) ? "" : "File not found";
  if (type != "addFile" && type != "copyFile") return "Unknown operation: " + type;
  const std::string xet_hash = line.value("xetHash", "");
  const auto content = content_of(state, xet_hash);
  if (!content) return fmt::format("Xet hash {} was not uploaded", xet_hash);
  bucket.objects[path] = {*content, xet_hash, line.value("mtime", std::uint64_t{0}),
                          iso_time(std::time(nullptr)), line.value("contentType", "")};
  return "";
}

Answer batch(const HubState& state, Bucket& bucket, const Request& request) {
  std::vector<Json> lines;
  std::istringstream text(request.content.text());
  for (std::string line; std::getline(text, line);) {
    if (line.empty()) continue;
    Json value = Json::parse(line, nullptr, false);
    if (!value.is_object()) refuse(400, "", "A line is no JSON object");
    lines.push_back(std::move(value));
  }
  if (lines.size() > kMostOperations)
    refuse(413, "", fmt::format("At most {} operations a call", kMostOperations));
  Json failed = Json::array();
  for (const Json& line : lines)
    if (const std::string fault = apply(state, bucket, line); !fault.empty())
      failed.push_back({{"path", line.value("path", "")}, {"error", fault}});
  bucket.updated_at = iso_time(std::time(nullptr));
  const bool all_failed = !lines.empty() && failed.size() == lines.size();
  return json_answer({{"success", failed.empty()},
                      {"processed", lines.size()},
                      {"succeeded", lines.size() - failed.size()},
                      {"failed", failed}},
                     all_failed ? 422 : 200);
}

Answer own_list(HubState& state, const RepoCall& call) {
  Json list = Json::array();
  const std::string search = form_field(call.request.query, "search");
  for (const auto& [id, bucket] : state.buckets)
    if (id.starts_with(call.repo.id + "/") && id.find(search) != std::string::npos &&
        call.caller.may_see(id, bucket.is_private))
      list.push_back(information(id, bucket));
  return page_answer(state, call.request, list, kMostEntries);
}

Answer change_settings(Bucket& bucket, const Request& request) {
  const Json body = json_body(request);
  if (body.contains("private")) bucket.is_private = body["private"].get<bool>();
  if (body.contains("visibility")) bucket.is_private = body["visibility"] == "private";
  return json_answer(Json::object());
}

}  // namespace

Answer answer_bucket(HubState& state, const RepoCall& call) {
  const std::string route =
      call.method() + (call.action.empty() ? std::string() : " " + call.action);
  const bool has_name = call.repo.id.find('/') != std::string::npos;
  if (!has_name && route == "GET") return own_list(state, call);
  if (route == "POST") return create(state, call);
  if (route == "GET") return json_answer(information(call.repo.id, seen_bucket(state, call)));
  if (route == "DELETE") {
    own_bucket(state, call);
    state.buckets.erase(call.repo.id);
    return json_answer(Json::object());
  }
  if (route == "PUT settings") return change_settings(own_bucket(state, call), call.request);
  if (route == "GET tree") {
    const bool recursive = form_field(call.request.query, "recursive") == "true";
    return page_answer(state, call.request,
                       listing(seen_bucket(state, call), call.path(0), recursive), kMostEntries);
  }
  if (route == "POST paths-info") return paths_info(seen_bucket(state, call), call.request);
  if (route == "POST batch") return batch(state, own_bucket(state, call), call.request);
  if (route == "GET xet-read-token" || route == "GET xet-write-token")
    return answer_xet_token(state, call);
  refuse(404, "", fmt::format("No such route: {} {}", call.method(), call.request.path));
}

Answer answer_bucket_resolve(HubState& state, const RepoCall& call) {
  if (call.method() != "GET" && call.method() != "HEAD") refuse(405, "", "Method not allowed");
  const Bucket& bucket = seen_bucket(state, call);
  const auto at = bucket.objects.find(call.path(0));
  if (at == bucket.objects.end()) refuse(404, "EntryNotFound", "Entry not found");
  Headers headers;
  add_xet_headers(state, call, at->second.xet_hash, "", headers);
  return redirect_to_storage(state, "/xet/" + at->second.xet_hash, at->second.content.size(),
                             at->second.xet_hash, std::move(headers));
}

}  // namespace lerobot::test_server
