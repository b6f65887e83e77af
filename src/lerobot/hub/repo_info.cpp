#include "lerobot/hub/repo_info.h"

#include <algorithm>
#include <utility>

#include "lerobot/hub/path_patterns.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

constexpr std::size_t kSha1Digits = 40;
constexpr std::size_t kSha256Digits = 64;

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::vector<Ref> refs_of(const Json& answer, const char* kind, const Subject& subject) {
  if (!answer.is_object() || !answer.contains(kind) || !answer[kind].is_array())
    fail_answer(subject, fmt::format("its list of refs lacks the array \"{}\"", kind));
  std::vector<Ref> refs;
  for (const Json& item : answer[kind]) {
    Ref ref{text_field(item, "name", subject), text_field(item, "targetCommit", subject)};
    if (!is_commit(ref.commit))
      fail_answer(subject,
                  fmt::format("the ref {} names \"{}\", which is no commit",
                              printable_text(ref.name, 100), printable_text(ref.commit, 100)));
    refs.push_back(std::move(ref));
  }
  return refs;
}

RepoFile file_of(const Json& item, const Subject& subject) {
  RepoFile file;
  file.path = text_field(item, "path", subject);
  file.size = count_field(item, "size", subject);
  file.blob_id = text_field(item, "oid", subject);
  if (item.contains("lfs") && !item["lfs"].is_null()) {
    file.lfs_sha256 = text_field(item["lfs"], "oid", subject);
    file.size = count_field(item["lfs"], "size", subject);
  }
  if (item.contains("xetHash") && !item["xetHash"].is_null())
    file.xet_hash = text_field(item, "xetHash", subject);
  if (const auto fault = fault_of(file)) fail_answer(subject, *fault);
  return file;
}

}  // namespace

std::optional<std::string> fault_of(const RepoFile& file) {
  const std::string name = printable_text(file.path, 200);
  if (!is_repo_path(file.path))
    return fmt::format("it lists the path \"{}\", which doesn't stay in the repository", name);
  if (!is_hex(file.blob_id, kSha1Digits))
    return fmt::format("{} has \"{}\" for a git hash; expected {} hexadecimal digits", name,
                       printable_text(file.blob_id, 100), kSha1Digits);
  for (const auto& hash : {file.lfs_sha256, file.xet_hash})
    if (hash && !is_hex(*hash, kSha256Digits))
      return fmt::format("{} has \"{}\" for a hash; expected {} hexadecimal digits", name,
                         printable_text(*hash, 100), kSha256Digits);
  // What can be asked for with signed file offsets.
  if (file.size > static_cast<std::uint64_t>(INT64_MAX) / 2)
    return fmt::format("{} has {} bytes, which no file has", name, file.size);
  return std::nullopt;
}

std::string resolve_commit(HubClient& client, const Repo& repo, const std::string& revision,
                           bool once) {
  if (is_commit(revision)) return revision;
  const Subject subject{.repo = repo, .revision = revision};
  const Json info = client.call_json(
      {.url = api_url(client.endpoint(), repo) + "/revision/" + percent_encode(revision),
       .once = once},
      subject);
  std::string commit = text_field(info, "sha", subject);
  if (!is_commit(commit))
    fail_answer(subject, fmt::format("\"{}\" is no commit", printable_text(commit, 100)));
  return commit;
}

bool repo_exists(HubClient& client, const Repo& repo) {
  try {
    client.call({.url = api_url(client.endpoint(), repo)}, {.repo = repo});
    return true;
  } catch (const HubError& error) {
    if (error.fault() == HubFault::kGated) return true;
    if (error.fault() == HubFault::kRepoNotFound) return false;
    // Who comes without a token isn't told whether a repository is missing or private.
    if (error.fault() == HubFault::kUnauthorized && !client.environment().credentials.token)
      return false;
    throw;
  }
}

Refs list_refs(HubClient& client, const Repo& repo) {
  const Subject subject{.repo = repo};
  const Json answer =
      client.call_json({.url = api_url(client.endpoint(), repo) + "/refs"}, subject);
  return {refs_of(answer, "branches", subject), refs_of(answer, "tags", subject)};
}

std::vector<RepoFile> list_files(HubClient& client, const Repo& repo, const std::string& commit,
                                 const std::string& folder) {
  const Subject subject{.repo = repo, .revision = commit, .path = folder};
  std::string url = api_url(client.endpoint(), repo) + "/tree/" + percent_encode(commit);
  if (!folder.empty()) url += "/" + percent_encode(folder);
  const Json items = client.call_pages({.url = url + "?recursive=true&expand=false"}, subject);
  std::vector<RepoFile> files;
  for (const Json& item : items)
    if (text_field(item, "type", subject) == "file") files.push_back(file_of(item, subject));
  std::sort(files.begin(), files.end(),
            [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
  const auto twice =
      std::adjacent_find(files.begin(), files.end(),
                         [](const RepoFile& a, const RepoFile& b) { return a.path == b.path; });
  if (twice != files.end())
    fail_answer(subject, fmt::format("it lists {} twice", printable_text(twice->path, 200)));
  return files;
}

}  // namespace lerobot::hub
