#include "lerobot/hub/bucket_mirror.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/hub/xet/xet_hash.h"

namespace lerobot::hub {
namespace {

/// Files that are fetched side by side have at most this many bytes together, or are one.
constexpr std::uint64_t kBatchBytes = 256 << 20;
/// A large file comes in pieces, so that progress is seen and Ctrl-C heard between them.
constexpr std::uint64_t kPieceBytes = 256 << 20;

constexpr const char* kRecord = ".bucket.json";

/// A file of known size beside its final name, filled through a mapping: bytes go straight from
/// libcurl into the page cache.
class IncomingFile {
 public:
  IncomingFile(fs::path path, std::uint64_t size)
      : path_(std::move(path)), temporary_(path_.string() + ".incomplete"), size_(size) {
    make_directories(path_.parent_path());
    fd_ = UniqueFd(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (fd_.get() < 0) fail_system(errno, "{}: cannot be created", temporary_.string());
    if (size_ == 0) return;
    // Space that is promised: a full disk is an error now, and not a signal later.
    if (const int error = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(size_)); error != 0) {
      remove();
      fail_system(error, "{}: no space for {} bytes", path_.string(), size_);
    }
    void* data = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (data == MAP_FAILED) {
      remove();
      fail_system(errno, "{}: cannot be mapped", temporary_.string());
    }
    data_ = static_cast<std::uint8_t*>(data);
  }
  IncomingFile(IncomingFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, {})),
        size_(other.size_),
        fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)) {}
  IncomingFile& operator=(IncomingFile&&) = delete;
  ~IncomingFile() { remove(); }

  std::span<std::uint8_t> bytes() { return {data_, size_}; }

  void commit() {
    unmap();
    if (::fsync(fd_.get()) != 0) fail_system(errno, "{}: cannot be written", temporary_.string());
    std::error_code error;
    fs::rename(temporary_, path_, error);
    if (error) fail_system(error.value(), "{}: cannot be replaced", path_.string());
    temporary_.clear();
  }

 private:
  void unmap() {
    if (data_ != nullptr) ::munmap(data_, size_);
    data_ = nullptr;
  }
  void remove() {
    unmap();
    if (temporary_.empty()) return;
    std::error_code ignored;
    fs::remove(temporary_, ignored);
  }

  fs::path path_;
  fs::path temporary_;
  std::uint64_t size_;
  UniqueFd fd_;
  std::uint8_t* data_ = nullptr;
};

std::string object_url(const std::string& endpoint, const Repo& bucket, const std::string& path) {
  return resolve_url(endpoint, bucket, "", path);
}

/// A Bucket's objects may be replaced at any time.
void check_content(const Repo& bucket, const BucketFile& object,
                   std::span<const std::uint8_t> content) {
  const std::string hash = xet::content_hash(content).hex();
  if (hash != object.xet_hash)
    fail(
        "{} of {}: its content has the hash {}, the listing says {}; it was replaced since, or "
        "damaged on the way: start again",
        object.path, describe(bucket), hash, object.xet_hash);
}

/// What the copy holds of an object.
struct Held {
  std::uint64_t size = 0;
  std::string xet_hash;
  bool operator==(const Held&) const = default;
};
using Record = std::map<std::string, Held>;

/// Empty when there is none, or it is damaged: everything is then fetched.
Record read_record(const fs::path& path) {
  Record record;
  try {
    const Json json = read_json_file(path);
    for (const auto& [name, held] : json.at("files").items())
      record[name] = {held.at("size").get<std::uint64_t>(), held.at("xet_hash").get<std::string>()};
  } catch (const std::exception&) {
    record.clear();
  }
  return record;
}

void write_record(const fs::path& path, const Record& record) {
  Json files = Json::object();
  for (const auto& [name, held] : record)
    files[name] = {{"size", held.size}, {"xet_hash", held.xet_hash}};
  write_file_atomic(path, to_python_json(Json{{"files", std::move(files)}}, 1) + "\n");
}

class Mirror {
 public:
  Mirror(const std::string& endpoint, const Repo& bucket, const fs::path& folder,
         RangeClient& client, const BucketMirrorOptions& options)
      : endpoint_(endpoint),
        bucket_(bucket),
        folder_(folder),
        client_(client),
        options_(options),
        record_(read_record(folder / kRecord)) {}

  void run(std::span<const BucketFile> wanted) {
    std::vector<const BucketFile*> missing;
    for (const BucketFile& file : wanted)
      if (!is_held(file)) missing.push_back(&file);
    progress_.all_files = missing.size();
    for (const BucketFile* file : missing) progress_.all_bytes += file->size;
    for (auto first = missing.begin(); first != missing.end();) first = fetch_batch(first, missing);
  }

  /// What the Bucket doesn't have below `prefix` goes.
  void remove_others(const std::string& prefix, std::span<const BucketFile> listing) {
    std::map<std::string, bool, std::less<>> there;
    for (const BucketFile& file : listing) there[file.path] = true;
    std::error_code error;
    std::vector<fs::path> extra;
    for (fs::recursive_directory_iterator entry(folder_ / prefix, error), end;
         !error && entry != end; entry.increment(error)) {
      const std::string path = entry->path().lexically_relative(folder_).generic_string();
      if (!entry->is_directory() && !there.contains(path)) extra.push_back(entry->path());
    }
    for (const fs::path& path : extra) {
      fs::remove(path, error);
      record_.erase(path.lexically_relative(folder_).generic_string());
    }
    if (!extra.empty()) write_record(folder_ / kRecord, record_);
  }

 private:
  bool is_held(const BucketFile& file) const {
    const auto found = record_.find(file.path);
    std::error_code error;
    return found != record_.end() && found->second == Held{file.size, file.xet_hash} &&
           fs::file_size(folder_ / file.path, error) == file.size && !error;
  }

  using Position = std::vector<const BucketFile*>::iterator;

  Position fetch_batch(Position first, std::vector<const BucketFile*>& missing) {
    std::vector<IncomingFile> files;
    std::vector<UrlRange> ranges;
    std::uint64_t bytes = 0;
    Position end = first;
    for (; end != missing.end() && (end == first || bytes + (*end)->size <= kBatchBytes); ++end) {
      bytes += (*end)->size;
      files.emplace_back(folder_ / (*end)->path, (*end)->size);
      ranges.push_back({object_url(endpoint_, bucket_, (*end)->path), 0, files.back().bytes()});
    }
    if (files.size() == 1)
      read_in_pieces(ranges.front());
    else
      read(ranges, bytes);
    for (Position at = first; at != end; ++at) {
      IncomingFile& file = files[static_cast<std::size_t>(at - first)];
      check_content(bucket_, **at, file.bytes());
      file.commit();
      record_[(*at)->path] = {(*at)->size, (*at)->xet_hash};
      ++progress_.files;
    }
    write_record(folder_ / kRecord, record_);
    report();
    return end;
  }

  void read_in_pieces(const UrlRange& whole) {
    for (std::uint64_t at = 0; at < whole.out.size(); at += kPieceBytes) {
      const std::uint64_t size = std::min<std::uint64_t>(kPieceBytes, whole.out.size() - at);
      const UrlRange piece{whole.url, at, whole.out.subspan(at, size)};
      read({&piece, 1}, size);
    }
  }

  void read(std::span<const UrlRange> ranges, std::uint64_t bytes) {
    report();
    client_.read(ranges);
    progress_.bytes += bytes;
  }

  void report() {
    if (options_.waiting) options_.waiting();
    if (options_.progress) options_.progress(progress_);
  }

  const std::string& endpoint_;
  const Repo& bucket_;
  const fs::path& folder_;
  RangeClient& client_;
  const BucketMirrorOptions& options_;
  Record record_;
  TransferProgress progress_;
};

FileLock take_lock(const Repo& bucket, const fs::path& folder, const BucketMirrorOptions& options) {
  const fs::path path = folder.parent_path() / fmt::format(".{}.lock", folder.filename().string());
  auto lock = FileLock::acquire(path, options.lock_timeout, options.waiting);
  if (!lock)
    fail(
        "timed out after {:g} s waiting for another process that copies files of {} (lock {}); "
        "check that it is healthy",
        options.lock_timeout.count(), describe(bucket), path.string());
  return *std::move(lock);
}

}  // namespace

FileLock mirror_bucket(const std::string& endpoint, const Repo& bucket,
                       std::span<const BucketFile> listing, const std::string& prefix,
                       const fs::path& folder, RangeClient& client,
                       const BucketMirrorOptions& options) {
  make_directories(folder);
  FileLock lock = take_lock(bucket, folder, options);
  std::vector<BucketFile> wanted;
  for (const BucketFile& file : listing)
    if (file.path.starts_with(prefix + "/")) wanted.push_back(file);
  Mirror mirror(endpoint, bucket, folder, client, options);
  mirror.run(wanted);
  mirror.remove_others(prefix, listing);
  return lock;
}

void fetch_bucket_file(const std::string& endpoint, const Repo& bucket, const BucketFile& object,
                       const fs::path& file, RangeClient& client) {
  IncomingFile incoming(file, object.size);
  const UrlRange range{object_url(endpoint, bucket, object.path), 0, incoming.bytes()};
  client.read({&range, 1});
  check_content(bucket, object, incoming.bytes());
  incoming.commit();
}

}  // namespace lerobot::hub
