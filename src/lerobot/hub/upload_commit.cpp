#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "lerobot/base/base64.h"
#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/base/parallel_loop.h"
#include "lerobot/hub/lfs_upload.h"
#include "lerobot/hub/repo_info.h"
#include "lerobot/hub/retry_policy.h"
#include "lerobot/hub/upload.h"
#include "lerobot/hub/upload_content.h"
#include "lerobot/hub/upload_progress.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

/// Files in one question.
constexpr std::size_t kPreupload = 256;
/// What the Hub looks at of each file to tell text from binary content.
constexpr std::uint64_t kSample = 512;
/// Content of regular files travels in the body of the commit, which the server must digest within
/// a minute.
constexpr std::uint64_t kMostRegularBytes = 100'000'000;
constexpr int kHashesAtOnce = 4;
/// How often a commit is tried anew when others commit at the same time or an answer is lost.
constexpr int kMostAttempts = 5;
/// A server that works on a commit, up to a minute, sends nothing meanwhile.
constexpr std::chrono::milliseconds kCommitPatience{120'000};
constexpr std::chrono::milliseconds kStaleWait{200};
constexpr std::chrono::milliseconds kTroubleWait{500};

/// One file of the commit and what is known about it.
struct Item {
  explicit Item(const UploadFile& file) : content(file) {}

  UploadContent content;
  bool large = false;                  ///< goes to the large-file storage
  bool ignored = false;                ///< the repository's .gitignore leaves it out
  std::string remote_id;               ///< what the branch holds at the path; empty: nothing
  std::optional<std::string> blob_id;  ///< of a regular file: git's SHA-1
  std::optional<std::string> sha256;   ///< of a large one

  const std::string& id() const { return large ? *sha256 : *blob_id; }
  bool changed() const { return !ignored && id() != remote_id; }
};

void check_repo_path(const std::string& path) {
  check_upload_path(path);
  const auto has_part = [framed = "/" + path + "/"](std::string_view part) {
    return framed.find(part) != std::string::npos;
  };
  if (has_part("/.git/") || has_part("/.cache/"))
    fail("\"{}\" can't be the path of a file in a repository: .git and .cache belong to tools",
         path);
}

void check_request(const Repo& repo, const CommitRequest& request) {
  check_internal(repo.type != RepoType::kBucket, "a Bucket has no commits");
  if (request.message.empty() || request.message.front() == '\n')
    fail("a commit to {} needs a message", describe(repo));
  std::set<std::string_view> paths;
  for (const UploadFile& file : request.files) {
    check_repo_path(file.path);
    if (!paths.insert(file.path).second)
      fail("\"{}\" is given twice for one commit to {}", file.path, describe(repo));
  }
}

/// The SHA-1 or SHA-256 that names the content.
std::string content_id(const UploadContent& content, bool large, const UploadMeter& meter) {
  Digest digest = large ? Digest(Sha256()) : git_blob_digest(content.size());
  content.read(0, content.size(), [&](std::span<const std::uint8_t> bytes) {
    meter.check();
    digest.update(bytes);
  });
  content.check_unchanged();
  return digest.hex_digest();
}

/// True when the branch has moved, and when nobody knows whether the commit was made.
bool is_worth_a_look(const HubError& error) {
  return error.fault() == HubFault::kStaleParent || error.fault() == HubFault::kUnreachable ||
         is_retryable_status(error.status());
}

class Publication {
 public:
  Publication(HubClient& client, const Repo& repo, const CommitRequest& request, UploadMeter& meter)
      : client_(client), repo_(repo), request_(request), meter_(meter) {
    for (const UploadFile& file : request.files) items_.emplace_back(file);
    subject_ = {.repo = repo,
                .revision = request.branch,
                .action = fmt::format("commit to the branch {}", request.branch)};
  }

  CommitResult run() {
    for (int attempt = 1;; ++attempt) {
      look_at_branch();
      find_ids();
      if (std::none_of(items_.begin(), items_.end(),
                       [](const Item& item) { return item.changed(); }))
        return nothing_to_do();
      send_large_files();
      try {
        return post_commit();
      } catch (const HubError& error) {
        if (attempt == kMostAttempts || !is_worth_a_look(error)) throw;
        log::info("{}; looking at the branch again", error.what());
        pause(attempt, error.fault() == HubFault::kStaleParent);
      }
    }
  }

 private:
  /// Which commit the branch is at, and what it holds at the paths of the files: in this order, so
  /// that a commit in between makes ours fail instead of being overwritten unseen.
  void look_at_branch() {
    meter_.check();
    head_ = resolve_commit(client_, repo_, request_.branch);
    for (std::size_t at = 0; at < items_.size(); at += kPreupload)
      preupload(std::span(items_).subspan(at, std::min(kPreupload, items_.size() - at)));
  }

  void preupload(std::span<Item> items) {
    Json files = Json::array();
    for (const Item& item : items)
      files.push_back(
          {{"path", item.content.path()},
           {"sample", base64(item.content.read(0, std::min(kSample, item.content.size())))},
           {"size", item.content.size()}});
    Json body = {{"files", std::move(files)}};
    if (const Item* rules = find(".gitignore"))
      body["gitIgnore"] = rules->content.read(0, rules->content.size());
    const Json answer =
        client_.call_json({.method = "POST",
                           .url = route("preupload"),
                           .body = body.dump(-1, ' ', false, Json::error_handler_t::replace),
                           .content_type = "application/json"},
                          subject_);
    const Json found = answer.is_object() ? answer.value("files", Json()) : Json();
    for (Item& item : items) take_mode(item, found);
  }

  void take_mode(Item& item, const Json& files) {
    const std::string& path = item.content.path();
    const auto at = std::find_if(files.begin(), files.end(), [&path](const Json& file) {
      return file.is_object() && file.value("path", Json()) == path;
    });
    if (at == files.end())
      fail_answer(subject_, fmt::format("preupload says nothing about {}", path));
    const std::string mode = text_field(*at, "uploadMode", subject_);
    if (mode != "lfs" && mode != "regular")
      fail_answer(subject_, fmt::format("preupload wants {} by the mode \"{}\"", path, mode));
    item.large = mode == "lfs" && item.content.size() > 0;  // nothing needs no storage
    item.ignored = at->value("shouldIgnore", Json(false)) == true;
    const Json id = at->value("oid", Json());
    item.remote_id = id.is_string() ? id.get<std::string>() : "";
  }

  const Item* find(std::string_view path) const {
    const auto at = std::find_if(items_.begin(), items_.end(),
                                 [path](const Item& item) { return item.content.path() == path; });
    return at == items_.end() ? nullptr : &*at;
  }

  void find_ids() {
    std::vector<Item*> wanted;
    for (Item& item : items_)
      if (!item.ignored && !(item.large ? item.sha256 : item.blob_id)) wanted.push_back(&item);
    ParallelLoop("hash").run(std::min(available_cpus(), kHashesAtOnce),
                             static_cast<std::int64_t>(wanted.size()), [&](std::int64_t i) {
                               Item& item = *wanted[static_cast<std::size_t>(i)];
                               (item.large ? item.sha256 : item.blob_id) =
                                   content_id(item.content, item.large, meter_);
                             });
  }

  void send_large_files() {
    std::vector<LfsObject> objects;
    for (const Item& item : items_)
      if (item.changed() && item.large && !stored_.contains(*item.sha256))
        objects.push_back({&item.content, *item.sha256});
    if (objects.empty()) return;
    upload_lfs(client_, repo_, request_.branch, objects, meter_);
    for (const LfsObject& object : objects) stored_.insert(object.sha256);
  }

  /// The branch holds everything: it did from the beginning, or since a commit of ours whose answer
  /// was lost, or since somebody else's.
  CommitResult nothing_to_do() {
    if (!first_parent_.empty())
      if (const auto own = find_own_commit()) return {.commit = *own, .url = commit_url(*own)};
    return {.commit = head_, .url = commit_url(head_), .unchanged = true};
  }

  /// The commit with our message since we first tried.
  std::optional<std::string> find_own_commit() {
    const Json commits = client_.call_json({.url = route("commits")}, subject_);
    for (const Json& commit : commits) {
      const std::string id = text_field(commit, "id", subject_);
      if (id == first_parent_) return std::nullopt;
      if (text_field(commit, "title", subject_) == summary()) return id;
    }
    return std::nullopt;
  }

  CommitResult post_commit() {
    const std::string body = commit_body();
    meter_.check();
    if (first_parent_.empty()) first_parent_ = head_;
    const Json answer = client_.call_json({.method = "POST",
                                           .url = route("commit"),
                                           .body = body,
                                           .content_type = "application/x-ndjson",
                                           .once = true,
                                           .patience = kCommitPatience},
                                          subject_);
    return {.commit = text_field(answer, "commitOid", subject_),
            .url = text_field(answer, "commitUrl", subject_)};
  }

  /// JSON lines: who and why, then the files.
  std::string commit_body() const {
    check_regular_size();
    std::string description = request_.message.substr(summary().size());
    description.erase(0, description.find_first_not_of('\n'));
    std::string body = to_line(
        "header", {{"summary", summary()}, {"description", description}, {"parentCommit", head_}});
    for (const Item& item : items_)
      if (item.changed()) body += item.large ? large_line(item) : regular_line(item);
    return body;
  }

  void check_regular_size() const {
    std::uint64_t bytes = 0;
    std::size_t files = 0;
    for (const Item& item : items_) {
      if (!item.changed() || item.large) continue;
      bytes += item.content.size();
      ++files;
    }
    if (bytes > kMostRegularBytes)
      fail(
          "{}: {} regular files with {} bytes are more than one commit takes ({} bytes); commit "
          "them in several steps, or have the repository's .gitattributes declare them as large",
          describe(repo_), files, bytes, kMostRegularBytes);
  }

  std::string large_line(const Item& item) const {
    item.content.check_unchanged();
    return to_line("lfsFile", {{"path", item.content.path()},
                               {"algo", "sha256"},
                               {"oid", *item.sha256},
                               {"size", item.content.size()}});
  }

  std::string regular_line(const Item& item) const {
    const std::string text = item.content.read(0, item.content.size());
    item.content.check_unchanged();
    return to_line(
        "file", {{"content", base64(text)}, {"path", item.content.path()}, {"encoding", "base64"}});
  }

  static std::string to_line(const char* key, const Json& value) {
    return Json{{"key", key}, {"value", value}}.dump(-1, ' ', false,
                                                     Json::error_handler_t::replace) +
           "\n";
  }

  std::string summary() const { return request_.message.substr(0, request_.message.find('\n')); }

  std::string route(const char* name) const {
    return fmt::format("{}/{}/{}", api_url(client_.endpoint(), repo_), name,
                       percent_encode(request_.branch));
  }

  std::string commit_url(const std::string& commit) const {
    return fmt::format("{}/commit/{}", page_url(client_.endpoint(), repo_), commit);
  }

  /// Several writers mustn't meet again at once, and a server in trouble needs its time.
  static void pause(int attempt, bool is_stale) {
    const auto spread = std::chrono::steady_clock::now().time_since_epoch().count() % 100;
    const auto wait = is_stale ? kStaleWait * attempt : kTroubleWait * (1 << (attempt - 1));
    std::this_thread::sleep_for(wait * (100 + spread) / 100);
  }

  HubClient& client_;
  const Repo& repo_;
  const CommitRequest& request_;
  UploadMeter& meter_;
  Subject subject_;
  std::vector<Item> items_;
  std::set<std::string> stored_;  ///< large objects that the storage has
  std::string head_;              ///< of the branch
  std::string first_parent_;      ///< what it was when we first tried to commit
};

}  // namespace

CommitResult upload_commit(HubClient& client, const Repo& repo, const CommitRequest& request,
                           const UploadOptions& options) {
  check_request(repo, request);
  CommitResult result;
  UploadMeter meter(options);
  meter.run([&] { result = Publication(client, repo, request, meter).run(); });
  return result;
}

}  // namespace lerobot::hub
