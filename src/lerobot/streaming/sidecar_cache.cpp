#include "lerobot/streaming/sidecar_cache.h"

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>
#include <vector>

#include "lerobot/base/file_lock.h"
#include "lerobot/base/files.h"
#include "lerobot/base/log.h"
#include "lerobot/streaming/sidecar_file.h"

namespace lerobot::streaming {
namespace {

/// What the place of the cache is to blame for; anything else means that a file in it is damaged.
bool is_access_problem(int error_number) {
  constexpr int kProblems[] = {EACCES, EPERM, EROFS, ENOSPC, EDQUOT, ENOTDIR};
  return std::find(std::begin(kProblems), std::end(kProblems), error_number) != std::end(kProblems);
}

/// A file that is removed at the end, if it is still there.
class TemporaryFile {
 public:
  explicit TemporaryFile(fs::path path) : path_(std::move(path)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class Preparation {
 public:
  Preparation(const SidecarIdentity& expected, Payload& payload, const SidecarCacheOptions& options)
      : expected_(expected),
        payload_(payload),
        options_(options),
        path_(sidecar_cache_path(options.lerobot_home, expected)),
        expected_digest_(identity_digest(expected)) {
    index_options_.lerobot_home = options.lerobot_home;
    index_options_.poll = options.build.poll;
  }

  std::shared_ptr<const MappedIndex> run() {
    log::info("Resolving the MP4 sidecar of {}: {}", expected_.repo_id, path_.string());
    if (auto index = open_cached()) return index;
    const FileLock lock = take_lock();
    if (auto index = open_cached()) return index;
    remove_leftovers();
    if (auto index = install_published()) return index;
    return build();
  }

 private:
  /// The cached sidecar's index if it describes the dataset as it is now; null otherwise.
  std::shared_ptr<const MappedIndex> open_cached() {
    try {
      std::error_code error;
      const fs::file_status status = fs::status(path_, error);
      if (status.type() == fs::file_type::not_found) return nullptr;
      if (error) fail_system(error.value(), "{}: cannot be looked at", path_.string());
      if (auto index = MappedIndex::open_existing(path_, index_options_)) {
        const std::optional<std::string> reason = stale(*index);
        if (!reason) return index;
        log::info("The cached MP4 sidecar is out of date ({}): {}", *reason, path_.string());
        return nullptr;
      }
      if (const auto reason = stale_reason(SidecarFile(path_).manifest().identity, expected_)) {
        log::info("The cached MP4 sidecar is out of date ({}): {}", *reason, path_.string());
        return nullptr;
      }
      return MappedIndex::open(path_, index_options_);
    } catch (const SystemError& error) {
      if (error.error_number() != ENOENT) throw;
    } catch (const Error& error) {
      log::warning("The cached MP4 sidecar can't be used and is made anew: {}", error.what());
    }
    return nullptr;
  }

  /// As stale_reason(), from what the index has recorded: without a look into the sidecar.
  std::optional<std::string> stale(const MappedIndex& index) const {
    if (index.identity_digest() != expected_digest_ || index.size() != expected_.sources.size())
      return "dataset, videos or their fingerprints differ";
    for (std::size_t i = 0; i < expected_.sources.size(); ++i) {
      const SourceFile& source = expected_.sources[i];
      if (source.size && *source.size != index.file_bytes(i))
        return fmt::format("{} had {} bytes and has {}", source.path, index.file_bytes(i),
                           *source.size);
    }
    return std::nullopt;
  }

  FileLock take_lock() {
    make_directories(path_.parent_path());
    fs::path lock_path = path_;
    lock_path += ".lock";
    bool said = false;
    auto lock =
        FileLock::acquire(lock_path, std::chrono::duration<double>(options_.lock_timeout_s), [&] {
          if (!std::exchange(said, true))
            log::info("Another process makes the MP4 sidecar; waiting up to {} s for {}",
                      options_.lock_timeout_s, lock_path.string());
          if (options_.build.poll) options_.build.poll();
        });
    if (!lock)
      throw SidecarLockTimeout(fmt::format(
          "timed out waiting {} s for the MP4 sidecar lock at {}: another process is still "
          "indexing; check that it is alive, and raise --dataset.streaming_sidecar_lock_timeout_s",
          options_.lock_timeout_s, lock_path.string()));
    return *std::move(lock);
  }

  std::string temporary_prefix() const { return "." + path_.filename().string() + "."; }
  static constexpr const char* kTemporarySuffix = ".tmp.npz";

  /// Temporary files of builders that were killed: nobody else writes them while the lock is held.
  void remove_leftovers() const {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_.parent_path(), ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(temporary_prefix()) && name.ends_with(kTemporarySuffix))
        fs::remove(entry.path(), ignored);
    }
  }

  fs::path temporary_path() const {
    std::random_device random;
    return path_.parent_path() / fmt::format("{}{:08x}{:08x}{}", temporary_prefix(), random(),
                                             random(), kTemporarySuffix);
  }

  std::shared_ptr<const MappedIndex> install_published() {
    if (!options_.fetch_published) return nullptr;
    log::info("Looking for a published MP4 sidecar of {}", expected_.repo_id);
    const TemporaryFile temporary(temporary_path());
    try {
      if (!options_.fetch_published(temporary.path())) return nullptr;
      const SidecarFile sidecar(temporary.path());
      const auto reason = stale_reason(sidecar.manifest().identity, expected_);
      if (!reason) return install(sidecar);
      log::info("The published MP4 sidecar is out of date ({})", *reason);
    } catch (const SystemError&) {
      throw;
    } catch (const Error& error) {
      log::warning("The published MP4 sidecar can't be used: {}", error.what());
    }
    return nullptr;
  }

  std::shared_ptr<const MappedIndex> build() {
    log::info("Building the MP4 sidecar of {}: {} files are indexed before the first batch",
              expected_.repo_id, expected_.sources.size());
    const TemporaryFile temporary(temporary_path());
    build_sidecar(expected_, payload_, temporary.path(), options_.build);
    const SidecarFile sidecar(temporary.path());
    if (const auto reason = stale_reason(sidecar.manifest().identity, expected_))
      fail("the MP4 sidecar of {} does not describe it after it was built: {}; start again",
           expected_.repo_id, *reason);
    return install(sidecar);
  }

  std::shared_ptr<const MappedIndex> install(const SidecarFile& sidecar) {
    const TemporaryFile converted(MappedIndex::convert(sidecar, index_options_));
    std::error_code error;
    fs::rename(sidecar.path(), path_, error);
    if (error) fail_system(error.value(), "{}: cannot be replaced", path_.string());
    sync_directory(path_.parent_path());
    return MappedIndex::install(converted.path(), path_, index_options_);
  }

  const SidecarIdentity& expected_;
  Payload& payload_;
  const SidecarCacheOptions& options_;
  const fs::path path_;
  const std::string expected_digest_;
  IndexOptions index_options_;
};

}  // namespace

std::shared_ptr<const MappedIndex> prepare_sidecar(const SidecarIdentity& expected,
                                                   Payload& payload,
                                                   const SidecarCacheOptions& options) {
  if (expected.sources.empty())
    fail("dataset {}: it has no video files, so there is nothing to index", expected.repo_id);
  try {
    return Preparation(expected, payload, options).run();
  } catch (const SystemError& error) {
    if (!is_access_problem(error.error_number())) throw;
    throw SystemError(
        fmt::format("the MP4 index cache cannot be accessed: {}; check permissions and free space "
                    "in HF_LEROBOT_HOME ({})",
                    error.what(), options.lerobot_home.string()),
        error.error_number());
  }
}

}  // namespace lerobot::streaming
