#include "lerobot/hub/blob_download.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/base/threads.h"
#include "lerobot/hub/block_writer.h"
#include "lerobot/hub/file_request.h"
#include "lerobot/hub/partial_blob.h"
#include "lerobot/hub/transfer_log.h"

namespace lerobot::hub {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Up to here a file is fetched into memory, in one request; as many as there are workers at once.
constexpr std::uint64_t kSmall = std::uint64_t{4} << 20;
/// A part takes about a second at 500 Mbit/s: long beside the round trip that begins it, and short
/// enough that the last ones of a file end together.
constexpr std::uint64_t kPart = std::uint64_t{64} << 20;
/// Memory between network and disk.
constexpr std::size_t kBlocks = 64;
constexpr int kMostWriters = 4;
constexpr milliseconds kReportEvery{200};
/// A blob that another process fetches is waited for so long before other work is looked for.
constexpr milliseconds kLockWait{200};
constexpr std::chrono::seconds kTellOfLocksEvery{10};
/// Content with a wrong hash is fetched so many times in all.
constexpr int kAttempts = 2;

/// Why the disk refuses, and what to do.
[[noreturn]] void fail_disk(const SystemError& error) {
  const int reason = error.error_number();
  if (reason == ENOSPC || reason == EDQUOT)
    fail(
        "{}; free some space, or choose another disk with HF_HOME; what has been fetched stays in "
        "the cache and is continued",
        error.what());
  if (reason == EACCES || reason == EPERM || reason == EROFS)
    fail("{}; choose a cache that can be written with HF_HOME", error.what());
  throw error;
}

void write_whole(const std::filesystem::path& path, std::string_view content) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (fd.get() < 0) fail_system(errno, "{}: cannot create", path.string());
  while (!content.empty()) {
    const ssize_t count = ::write(fd.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system(errno, "{}: cannot write", path.string());
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  // Network file systems tell of a full disk only now.
  if (::close(fd.release()) != 0) fail_system(errno, "{}: cannot write", path.string());
}

class Download {
 public:
  Download(HubClient& client, const RepoCache& cache, const std::string& commit,
           std::vector<MissingBlob> blobs)
      : client_(client), cache_(cache), commit_(commit) {
    bool large = false;
    for (MissingBlob& blob : blobs) {
      all_files_ += blob.paths.size();
      all_bytes_ += static_cast<std::int64_t>(blob.file.size);
      large = large || blob.file.size > kSmall;
      auto job = std::make_shared<Job>();
      job->blob = std::move(blob);
      tasks_.push_back([this, job] { fetch(job); });
    }
    if (large) {
      const int threads = std::clamp(available_cpus() / 2, 2, kMostWriters);
      writer_.emplace(std::max(kBlocks, 4 * client.connections()), threads,
                      [&client] { client.wake(); });
    }
  }

  void run(const std::function<void(const TransferProgress&)>& progress) {
    std::vector<std::thread> workers;
    // While some write their file, others keep the connections busy.
    const std::size_t count = client_.connections() + client_.connections() / 2;
    const std::size_t useful = writer_ ? count : std::min(count, tasks_.size());
    for (std::size_t i = 0; i < useful; ++i) {
      try {
        workers.emplace_back([this] { work(); });
      } catch (const std::system_error&) {  // so many threads are not allowed: fewer do as well
        if (workers.empty()) throw;
        break;
      }
    }
    watch(progress);
    for (std::thread& worker : workers) worker.join();
    if (failure_) std::rethrow_exception(failure_);
    if (progress) progress(state());
  }

 private:
  using Task = std::function<void()>;

  struct Job {
    MissingBlob blob;
    int attempts = 1;
    bool deferred = false;  ///< another process fetches it
  };

  /// A large blob whose parts several workers fetch.
  struct LargeJob {
    std::shared_ptr<Job> job;
    std::shared_ptr<FileSource> source;
    std::shared_ptr<PartialBlob> blob;
    std::uint64_t kept = 0;  ///< bytes that were left over
    std::atomic<std::size_t> parts_left = 0;
  };

  // --- the workers and their tasks

  void work() {
    while (const auto task = next()) {
      try {
        (*task)();
      } catch (const SystemError& error) {
        stop_with_disk(error);
      } catch (...) {
        stop(std::current_exception());
      }
      const std::lock_guard lock(mutex_);
      --active_;
      changed_.notify_all();
    }
  }

  /// nullopt when no work is left, or it has been stopped.
  std::optional<Task> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped() || !tasks_.empty() || active_ == 0; });
    if (stopped() || tasks_.empty()) return std::nullopt;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    ++active_;
    return task;
  }

  void watch(const std::function<void(const TransferProgress&)>& progress) {
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return active_ == 0 && (stopped() || tasks_.empty()); };
    while (!changed_.wait_for(lock, kReportEvery, ended)) {
      if (!progress || stopped()) continue;
      lock.unlock();
      try {
        progress(state());
      } catch (...) {
        stop(std::current_exception());
      }
      lock.lock();
    }
  }

  bool stopped() const { return stop_.stop_requested(); }

  void stop(std::exception_ptr failure) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;  // those that follow from the first
      failure_ = std::move(failure);
    }
    stop_.request_stop();
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  void stop_with_disk(const SystemError& error) {
    try {
      fail_disk(error);
    } catch (...) {
      stop(std::current_exception());
    }
  }

  void enqueue(std::vector<Task> tasks, bool soon) {
    const std::lock_guard lock(mutex_);
    tasks_.insert(soon ? tasks_.begin() : tasks_.end(), std::make_move_iterator(tasks.begin()),
                  std::make_move_iterator(tasks.end()));
    changed_.notify_all();
  }

  TransferProgress state() const {
    const auto whole = [](std::int64_t n) {
      return static_cast<std::uint64_t>(std::max<std::int64_t>(n, 0));
    };
    const std::uint64_t all = whole(all_bytes_);
    return {.files = files_,
            .all_files = all_files_,
            .bytes = std::min(whole(received_), all),
            .all_bytes = all};
  }

  // --- one blob

  void fetch(const std::shared_ptr<Job>& job) {
    const RepoFile& file = job->blob.file;
    const milliseconds patience = job->deferred ? kLockWait : milliseconds(0);
    auto lock = cache_.lock_blob(file.etag(), patience, [this] {
      if (stopped()) fail("the download was given up");
    });
    if (!lock) return defer(job);
    if (is_there(*job)) {
      all_bytes_ -= static_cast<std::int64_t>(file.size);
    } else if (file.size <= kSmall) {
      fetch_small(*job);
    } else {
      begin_large(job, std::move(*lock));
    }
  }

  /// A worker must not wait for long: it may have to fetch a part of what the others wait for.
  void defer(const std::shared_ptr<Job>& job) {
    if (job->deferred) tell_of_lock(job->blob.file);
    job->deferred = true;
    enqueue({[this, job] { fetch(job); }}, false);
  }

  void tell_of_lock(const RepoFile& file) {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - told_of_lock_ < kTellOfLocksEvery) return;
    told_of_lock_ = Clock::now();
    log::info("waiting for another process that fetches {} of {}", file.path,
              describe(cache_.repo()));
  }

  /// True when another process has brought it meanwhile.
  bool is_there(const Job& job) {
    const RepoFile& file = job.blob.file;
    const bool all_placed =
        std::all_of(job.blob.paths.begin(), job.blob.paths.end(), [&](const std::string& path) {
          RepoFile same = file;
          same.path = path;
          return cache_.find(commit_, same).has_value();
        });
    if (!all_placed) {
      if (!cache_.has_blob(file.etag(), file.size)) return false;
      cache_.place(commit_, job.blob.paths, file.etag(), true);
    }
    files_ += job.blob.paths.size();
    return true;
  }

  void place(const Job& job) {
    cache_.place(commit_, job.blob.paths, job.blob.file.etag(), false);
    files_ += job.blob.paths.size();
  }

  std::shared_ptr<FileSource> source_of(const RepoFile& file) {
    return std::make_shared<FileSource>(client_, cache_.repo(), commit_, file, received_);
  }

  void send(HttpRequest& request) {
    HttpRequest* const requests[] = {&request};
    try {
      client_.sender().send_all(requests, stop_.get_token());
    } catch (const UnreachableError& error) {
      fail_unreachable({.repo = cache_.repo()}, error.what(), error.status());
    }
  }

  /// Throws when the content was wrong too often. `received`: bytes that come again.
  void note_wrong_content(Job& job, const std::string& found, std::uint64_t received) {
    const RepoFile& file = job.blob.file;
    const std::string what =
        fmt::format("its content has the hash {}, expected {}", found, file.etag());
    if (job.attempts >= kAttempts)
      fail_answer({.repo = cache_.repo(), .revision = commit_, .path = file.path},
                  fmt::format("{} ({} attempts)", what, job.attempts));
    log::warning("{} of {}: {}; fetching it again", file.path, describe(cache_.repo()), what);
    ++job.attempts;
    received_ -= static_cast<std::int64_t>(received);
  }

  void fetch_small(Job& job) {
    const RepoFile& file = job.blob.file;
    while (true) {
      std::string content;
      if (file.size > 0) {
        WholeFile request(source_of(file));
        send(request);
        content = request.take();
      }
      Digest digest = digest_for(file);
      digest.update(content);
      const std::string found = digest.hex_digest();
      if (found == file.etag()) return keep_small(job, content);
      note_wrong_content(job, found, file.size);
    }
  }

  void keep_small(const Job& job, const std::string& content) {
    const auto temporary = cache_.incomplete_blob(job.blob.file.etag());
    try {
      write_whole(temporary, content);
      const auto blob = cache_.blob(job.blob.file.etag());
      if (::rename(temporary.c_str(), blob.c_str()) != 0)
        fail_system(errno, "{}: cannot be renamed to {}", temporary.string(), blob.string());
    } catch (const SystemError&) {
      ::unlink(temporary.c_str());
      throw;
    }
    place(job);
  }

  // --- a large blob in parts

  void begin_large(const std::shared_ptr<Job>& job, BlobLock lock) {
    const RepoFile& file = job->blob.file;
    auto large = std::make_shared<LargeJob>();
    large->job = job;
    large->source = source_of(file);
    large->blob = std::make_shared<PartialBlob>(cache_, file, std::move(lock));
    large->kept = file.size - large->blob->missing_bytes();
    if (large->kept > 0) {
      all_bytes_ -= static_cast<std::int64_t>(large->kept);
      log::info("continuing {} of {} at {}", file.path, describe(cache_.repo()),
                describe_bytes(large->kept, file.size));
    }
    const std::vector<PartialBlob::Range> parts = large->blob->missing(kPart);
    if (parts.empty()) return finish_large(*large);
    large->parts_left = parts.size();
    fetch_part(large, parts.front(), [this, large, parts](bool ranges) {
      if (ranges)
        enqueue_others(large, parts);
      else
        large->parts_left = 1;
    });
  }

  /// When the first part has found the place of the bytes.
  void enqueue_others(const std::shared_ptr<LargeJob>& large,
                      const std::vector<PartialBlob::Range>& parts) {
    std::vector<Task> tasks;
    for (std::size_t i = 1; i < parts.size(); ++i)
      tasks.push_back([this, large, range = parts[i]] { fetch_part(large, range, {}); });
    enqueue(std::move(tasks), true);
  }

  void fetch_part(const std::shared_ptr<LargeJob>& large, PartialBlob::Range range,
                  std::function<void(bool)> begun) {
    {
      FilePart part(large->source, large->blob, range, *writer_, std::move(begun));
      send(part);
    }
    if (--large->parts_left == 0) finish_large(*large);
  }

  void finish_large(LargeJob& large) {
    Job& job = *large.job;
    const RepoFile& file = job.blob.file;
    const std::string found = large.blob->hash();
    if (found == file.etag()) {
      large.blob->rename_to(cache_.blob(file.etag()));
      return place(job);
    }
    large.blob->condemn();
    note_wrong_content(job, found, file.size - large.kept);
    all_bytes_ += static_cast<std::int64_t>(large.kept);
    enqueue({[this, job = large.job] { fetch(job); }}, true);
  }

  HubClient& client_;
  const RepoCache& cache_;
  const std::string& commit_;
  std::atomic<std::uint64_t> files_ = 0;
  std::uint64_t all_files_ = 0;
  std::atomic<std::int64_t> received_ = 0;
  std::atomic<std::int64_t> all_bytes_ = 0;
  std::optional<BlockWriter> writer_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::size_t active_ = 0;
  std::exception_ptr failure_;
  Clock::time_point told_of_lock_ = Clock::now();
  std::stop_source stop_;
};

}  // namespace

void download_blobs(HubClient& client, const RepoCache& cache, const std::string& commit,
                    std::vector<MissingBlob> blobs,
                    const std::function<void(const TransferProgress&)>& progress) {
  Download(client, cache, commit, std::move(blobs)).run(progress);
}

}  // namespace lerobot::hub
