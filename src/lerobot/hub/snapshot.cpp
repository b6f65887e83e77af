#include "lerobot/hub/snapshot.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/blob_download.h"
#include "lerobot/hub/repo_cache.h"
#include "lerobot/hub/repo_info.h"
#include "lerobot/hub/transfer_log.h"

namespace lerobot::hub {
namespace {

namespace fs = std::filesystem;

/// So many missing files are named.
constexpr std::size_t kNamed = 3;

bool means_off(const HubError& error) {
  return error.fault() == HubFault::kOffline || error.fault() == HubFault::kUnreachable;
}

/// One call of download_snapshot().
class Fetch {
 public:
  Fetch(HubClient& client, const Repo& repo, const std::string& revision, const fs::path& folder,
        const SnapshotOptions& options)
      : client_(client),
        repo_(repo),
        revision_(revision),
        cache_folder_(folder),
        options_(options),
        cache_(folder, repo, client.environment().symlinks) {}

  /// With something in the cache to fall back on, an unreachable Hub is tried once; with all
  /// patience when that doesn't suffice.
  Snapshot run() {
    try {
      return attempt();
    } catch (const HubError&) {
      if (!impatient_ || !off_ || off_->fault() != HubFault::kUnreachable) throw;
    }
    impatient_ = false;
    off_.reset();
    return attempt();
  }

 private:
  Snapshot attempt() {
    commit_ = find_commit();
    const auto files = find_listing();
    if (files) {
      check_folder(*files);
      complete(*files);
    } else {
      use_unlisted();
    }
    if (off_ && off_->fault() == HubFault::kUnreachable)
      log::warning("{}; going on with what the cache holds of {}: commit {}", off_->what(),
                   describe(repo_), commit_);
    if (!off_ && files) cache_.remember(revision_, commit_);
    return {cache_.snapshot(commit_), commit_};
  }

  std::string find_commit() {
    const auto cached = cache_.commit_of(revision_);
    impatient_ = impatient_ && cached && !is_commit(revision_);
    if (is_commit(revision_)) return revision_;
    try {
      return resolve_commit(client_, repo_, revision_, impatient_);
    } catch (const HubError& error) {
      if (!means_off(error)) throw;
      off_ = error;
    }
    if (!cached) fail_off("which commit that is");
    return *cached;
  }

  /// nullopt: the Hub isn't there to be asked, and the cache has none.
  std::optional<std::vector<RepoFile>> find_listing() {
    auto files = cache_.listing(commit_);
    if (files || off_) return files;
    try {
      files = list_files(client_, repo_, commit_, options_.folder);
    } catch (const HubError& error) {
      if (!means_off(error)) throw;
      off_ = error;
      return std::nullopt;
    }
    if (options_.folder.empty()) cache_.remember_listing(commit_, *files);
    return files;
  }

  bool is_below_folder(std::string_view path) const {
    const std::string& folder = options_.folder;
    return folder.empty() ||
           (path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/');
  }

  bool is_wanted(std::string_view path) const {
    return is_below_folder(path) && (!options_.wanted || options_.wanted(path));
  }

  /// As the Hub does it when it is asked for one.
  void check_folder(const std::vector<RepoFile>& files) const {
    const bool found = std::any_of(files.begin(), files.end(), [this](const RepoFile& file) {
      return is_below_folder(file.path);
    });
    if (!found && !options_.folder.empty())
      throw HubError(HubFault::kEntryNotFound, 0,
                     fmt::format("there is no {} of {} at {}; check the name", options_.folder,
                                 describe(repo_), commit_));
  }

  void complete(const std::vector<RepoFile>& files) {
    std::vector<MissingBlob> missing = missing_blobs(files);
    if (missing.empty()) {
      report_nothing();
      return;
    }
    if (off_ || client_.environment().offline) fail_missing(missing);
    download_blobs(client_, cache_, commit_, std::move(missing), options_.progress);
  }

  void report_nothing() const {
    if (options_.progress) options_.progress({});
  }

  /// Files of one content are one blob. Those whose blob is there from another commit only get
  /// their links.
  std::vector<MissingBlob> missing_blobs(const std::vector<RepoFile>& files) const {
    std::vector<MissingBlob> missing;
    std::unordered_map<std::string, std::size_t> by_etag;
    for (const RepoFile& file : files) {
      if (!is_wanted(file.path) || cache_.find(commit_, file)) continue;
      if (cache_.has_blob(file.etag(), file.size) && place(file)) continue;
      const auto [at, is_new] = by_etag.emplace(file.etag(), missing.size());
      if (is_new) missing.push_back({file, {}});
      MissingBlob& blob = missing[at->second];
      if (blob.file.size != file.size)
        fail_answer(
            {.repo = repo_, .revision = commit_},
            fmt::format("{} and {} have one hash and two sizes", blob.file.path, file.path));
      blob.paths.push_back(file.path);
    }
    return missing;
  }

  /// False in a cache that can't be written: whoever needs the file there will say so.
  bool place(const RepoFile& file) const {
    try {
      cache_.place(commit_, {file.path}, file.etag(), true);
      return true;
    } catch (const SystemError&) {
      return false;
    }
  }

  void use_unlisted() const {
    const fs::path folder = cache_.snapshot(commit_);
    std::error_code ended;
    for (fs::recursive_directory_iterator at(folder, ended), end; !ended && at != end;
         at.increment(ended)) {
      const std::string path = at->path().lexically_relative(folder).generic_string();
      std::error_code ignored;
      if (!fs::is_regular_file(at->path(), ignored) || !is_wanted(path)) continue;
      log::warning("the cache holds {} at {} without a list of its files: it may be incomplete",
                   describe(repo_), revision_);
      report_nothing();
      return;
    }
    fail_off("any of the files that are needed");
  }

  [[noreturn]] void fail_missing(const std::vector<MissingBlob>& missing) const {
    std::vector<std::string> paths;
    for (const MissingBlob& blob : missing)
      paths.insert(paths.end(), blob.paths.begin(), blob.paths.end());
    std::sort(paths.begin(), paths.end());
    const std::size_t others = paths.size() - std::min(kNamed, paths.size());
    paths.resize(paths.size() - others);
    fail_off(fmt::format("{}{}", fmt::join(paths, ", "),
                         others > 0 ? fmt::format(" and {} other files", others) : ""));
  }

  [[noreturn]] void fail_off(const std::string& lacked) const {
    const std::string name = fmt::format("{} at {}", describe(repo_), revision_);
    const std::string lack = fmt::format("the cache {} lacks {}", cache_folder_.string(), lacked);
    if (!off_ || off_->fault() == HubFault::kOffline)
      throw HubError(HubFault::kOffline, 0,
                     fmt::format("{}: {}, and offline mode is on; unset HF_HUB_OFFLINE (or "
                                 "TRANSFORMERS_OFFLINE), or fetch it where there is a network",
                                 name, lack));
    throw HubError(HubFault::kUnreachable, off_->status(),
                   fmt::format("{}, and {}", off_->what(), lack));
  }

  HubClient& client_;
  const Repo& repo_;
  const std::string& revision_;
  const fs::path& cache_folder_;
  const SnapshotOptions& options_;
  const RepoCache cache_;
  std::string commit_;
  bool impatient_ = true;
  std::optional<HubError> off_;  ///< why the Hub isn't asked any more
};

}  // namespace

Snapshot download_snapshot(HubClient& client, const Repo& repo, const std::string& revision,
                           const fs::path& cache, const SnapshotOptions& options) {
  return Fetch(client, repo, revision, cache, options).run();
}

std::function<void(const TransferProgress&)> log_download(const std::string& name) {
  return [log = std::make_shared<TransferLog>("Fetching", name)](const TransferProgress& at) {
    log->report(at);
  };
}

}  // namespace lerobot::hub
