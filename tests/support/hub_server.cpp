#include "tests/support/hub_server.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/support/http_server.h"
#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

/// A folder of its own that goes with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("lerobot-test-hub-{}-{}", ::getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Every answer of the Hub tells how much is left; a free account has these numbers.
void add_rate_limits(const Request& request, Headers& headers) {
  const bool resolves = request.path.find("/resolve") != std::string::npos;
  const bool api = request.path.starts_with("/api/");
  const char* name = resolves ? "resolvers" : api ? "api" : "pages";
  const int quota = resolves ? 5000 : api ? 1000 : 200;
  headers.emplace_back("RateLimit", fmt::format("\"{}\";r={};t=300", name, quota - 1));
  headers.emplace_back("RateLimit-Policy",
                       fmt::format("\"fixed window\";\"{}\";q={};w=300", name, quota));
}

/// Paths of the files below a folder, with '/'.
std::vector<std::string> files_below(const std::filesystem::path& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      paths.push_back(entry.path().lexically_relative(folder).generic_string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

class HubServer::Impl {
 public:
  Impl()
      : storage_({.name = "storage",
                  .handler = [this](const Request& request) { return storage_answer(request); },
                  .hook = [this](const Request& request) { return behaviour(request); },
                  .folder = scratch_.path()}),
        xet_({.name = "xet",
              .handler = [this](const Request& request) { return xet_answer(request); },
              .hook = [this](const Request& request) { return behaviour(request); },
              .folder = scratch_.path()}),
        hub_({.name = "hub",
              .handler = [this](const Request& request) { return hub_answer(request); },
              .hook = [this](const Request& request) { return behaviour(request); },
              .folder = scratch_.path()}) {
    const std::lock_guard lock(state.mutex);
    state.hub_url = hub_.url();
    state.storage_url = storage_.url("", "localhost");
    state.xet_url = xet_.url("", "localhost");
  }

  /// The repository, which is made if needed. The state is locked.
  Repository& repository(const hub::Repo& repo) {
    const auto at = state.repositories.find(repo);
    if (at != state.repositories.end()) return at->second;
    return state.repositories.emplace(repo, Repository("tester")).first->second;
  }
  Bucket& bucket(const hub::Repo& repo) {
    const auto [at, is_new] = state.buckets.try_emplace(repo.id);
    if (is_new) at->second.created_at = at->second.updated_at = iso_time(std::time(nullptr));
    return at->second;
  }

  std::string commit(const hub::Repo& repo, const std::string& branch,
                     const std::function<void(Tree&)>& change) {
    Repository& to = repository(repo);
    if (!to.branches.contains(branch)) to.branches[branch] = to.branches.at("main");
    Tree tree = to.find(branch)->tree;
    change(tree);
    return to.commit(branch, std::move(tree), "Upload folder using huggingface_hub", "", "tester")
        .id;
  }

  mutable HubState state;

  std::mutex hook_mutex;  ///< held while the hook runs
  Hook hook;

  mutable std::mutex log_mutex;
  std::vector<Request> log;
  std::chrono::milliseconds latency{0};

 private:
  Behaviour behaviour(const Request& request) {
    std::chrono::milliseconds pause;
    {
      const std::lock_guard lock(log_mutex);
      log.push_back(request);
      log.back().content = {};
      pause = latency;
    }
    Behaviour behaviour;
    {
      const std::lock_guard lock(hook_mutex);
      if (hook) behaviour = hook(request).value_or(Behaviour{});
    }
    behaviour.latency += pause;
    return behaviour;
  }

  Answer hub_answer(const Request& request) {
    const std::lock_guard lock(state.mutex);
    Answer answer = answer_hub(state, request);
    add_rate_limits(request, answer.headers);
    answer.headers.emplace_back("X-Request-Id", fmt::format("Root=1-{:08x}", ++state.counter));
    return answer;
  }
  Answer storage_answer(const Request& request) {
    const std::lock_guard lock(state.mutex);
    return answer_storage(state, request);
  }
  Answer xet_answer(const Request& request) {
    const std::lock_guard lock(state.mutex);
    return answer_xet(state, request);
  }

  ScratchFolder scratch_;
  HttpServer storage_;  ///< the servers last: they call the rest
  HttpServer xet_;
  HttpServer hub_;
};

HubServer::HubServer() : impl_(std::make_unique<Impl>()) {}
HubServer::~HubServer() = default;

std::string HubServer::endpoint() const { return impl_->state.hub_url; }

void HubServer::add_account(HubAccount account) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->state.accounts.push_back(std::move(account));
}

void HubServer::add_repo(const hub::Repo& repo, bool is_private) {
  const std::lock_guard lock(impl_->state.mutex);
  if (repo.type == hub::RepoType::kBucket)
    impl_->bucket(repo).is_private = is_private;
  else
    impl_->repository(repo).is_private = is_private;
}

std::string HubServer::commit(const hub::Repo& repo, const HubFiles& files,
                              const std::string& branch) {
  const std::lock_guard lock(impl_->state.mutex);
  return impl_->commit(repo, branch, [&](Tree& tree) {
    for (const auto& [path, content] : files)
      tree[path] = impl_->state.add_file(path, Bytes(content));
  });
}

std::string HubServer::commit_folder(const hub::Repo& repo, const std::filesystem::path& folder,
                                     const std::string& branch) {
  const std::lock_guard lock(impl_->state.mutex);
  return impl_->commit(repo, branch, [&](Tree& tree) {
    for (const std::string& path : files_below(folder))
      tree[path] = impl_->state.add_file(path, Bytes::of_file(folder / path));
  });
}

void HubServer::tag(const hub::Repo& repo, const std::string& name, const std::string& commit) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->repository(repo).tags[name] = commit;
}

void HubServer::put(const hub::Repo& bucket, const std::string& path, std::string content) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->state.put_object(impl_->bucket(bucket), path, Bytes(std::move(content)));
}

void HubServer::put_folder(const hub::Repo& bucket, const std::filesystem::path& folder) {
  const std::lock_guard lock(impl_->state.mutex);
  for (const std::string& path : files_below(folder))
    impl_->state.put_object(impl_->bucket(bucket), path, Bytes::of_file(folder / path));
}

void HubServer::rename(const hub::Repo& from, const hub::Repo& to) {
  const std::lock_guard lock(impl_->state.mutex);
  if (auto node = impl_->state.repositories.extract(from)) {
    node.key() = to;
    impl_->state.repositories.insert(std::move(node));
  }
  impl_->state.renamed[from] = to.id;
}

void HubServer::set_gated(const hub::Repo& repo) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->repository(repo).is_gated = true;
}

std::optional<std::string> HubServer::file(const hub::Repo& repo, const std::string& revision,
                                           const std::string& path) const {
  const std::lock_guard lock(impl_->state.mutex);
  if (repo.type == hub::RepoType::kBucket) {
    const auto bucket = impl_->state.buckets.find(repo.id);
    if (bucket == impl_->state.buckets.end()) return std::nullopt;
    const auto object = bucket->second.objects.find(path);
    if (object == bucket->second.objects.end()) return std::nullopt;
    return object->second.content.text();
  }
  const auto repository = impl_->state.repositories.find(repo);
  if (repository == impl_->state.repositories.end()) return std::nullopt;
  const Commit* commit = repository->second.find(revision);
  if (!commit || !commit->tree.contains(path)) return std::nullopt;
  return commit->tree.at(path)->content.text();
}

std::vector<std::string> HubServer::files(const hub::Repo& repo,
                                          const std::string& revision) const {
  const std::lock_guard lock(impl_->state.mutex);
  std::vector<std::string> paths;
  if (repo.type == hub::RepoType::kBucket) {
    if (const auto at = impl_->state.buckets.find(repo.id); at != impl_->state.buckets.end())
      for (const auto& [path, object] : at->second.objects) paths.push_back(path);
    return paths;
  }
  const auto repository = impl_->state.repositories.find(repo);
  if (repository == impl_->state.repositories.end()) return paths;
  if (const Commit* commit = repository->second.find(revision))
    for (const auto& [path, file] : commit->tree) paths.push_back(path);
  return paths;
}

std::vector<std::pair<std::string, std::string>> HubServer::history(
    const hub::Repo& repo, const std::string& branch) const {
  const std::lock_guard lock(impl_->state.mutex);
  std::vector<std::pair<std::string, std::string>> commits;
  const auto repository = impl_->state.repositories.find(repo);
  if (repository == impl_->state.repositories.end()) return commits;
  const Commit* last = repository->second.find(branch);
  if (!last) return commits;
  for (const Commit* commit : repository->second.history(*last))
    commits.emplace_back(commit->id, commit->description.empty()
                                         ? commit->title
                                         : commit->title + "\n\n" + commit->description);
  return commits;
}

void HubServer::set_large_from(std::uint64_t bytes) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->state.large_from = bytes;
}

void HubServer::set_multipart(std::uint64_t chunk_size) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->state.multipart_size = chunk_size;
}

void HubServer::set_page_size(std::size_t entries) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->state.page_size = entries;
}

void HubServer::set_link_lifetime(std::chrono::milliseconds time) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->state.link_lifetime = time;
}

void HubServer::set_xet(bool everything) {
  const std::lock_guard lock(impl_->state.mutex);
  impl_->state.everything_in_xet = everything;
}

void HubServer::set_latency(std::chrono::milliseconds time) {
  const std::lock_guard lock(impl_->log_mutex);
  impl_->latency = time;
}

void HubServer::set_hook(Hook hook) {
  const std::lock_guard lock(impl_->hook_mutex);
  impl_->hook = std::move(hook);
}

std::vector<Request> HubServer::requests() const {
  const std::lock_guard lock(impl_->log_mutex);
  return impl_->log;
}

std::size_t HubServer::requests(const std::string& method, const std::string& part) const {
  const std::lock_guard lock(impl_->log_mutex);
  return static_cast<std::size_t>(
      std::count_if(impl_->log.begin(), impl_->log.end(), [&](const Request& request) {
        return request.method == method && request.path.find(part) != std::string::npos;
      }));
}

void HubServer::forget_requests() {
  const std::lock_guard lock(impl_->log_mutex);
  impl_->log.clear();
}

}  // namespace lerobot::test_server
