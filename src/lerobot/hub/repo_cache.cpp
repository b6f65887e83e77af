#include "lerobot/hub/repo_cache.h"

#include <cerrno>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/path_patterns.h"

namespace lerobot::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kListingFormat = 1;
constexpr std::string_view kIncomplete = ".incomplete";
constexpr std::size_t kRandomDigits = 8;

/// https://bford.info/cachedir: back-up programs leave such a folder out.
constexpr std::string_view kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a cache of the Hugging Face Hub; its content can be downloaded again.\n"
    "# What this file is for: https://bford.info/cachedir/\n";

void check_name(std::string_view text, const char* what) {
  if (!is_repo_path(text)) fail("\"{}\" is no {} that a cache can keep", text, what);
}

std::string random_hex() {
  std::random_device device;
  return fmt::format("{:08x}", static_cast<std::uint32_t>(device()));
}

/// `file` with something random at its end, to be renamed to it.
fs::path beside(const fs::path& file) {
  fs::path out = file;
  out += fmt::format(".{}.tmp", random_hex());
  return out;
}

void rename_over(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  const int reason = errno;
  ::unlink(from.c_str());
  fail_system(reason, "{}: cannot be replaced", to.string());
}

/// Text that another process may read at any time. Not flushed to the device: a cache can be made
/// again, and its readers take nothing for granted.
void write_beside_and_rename(const fs::path& file, std::string_view text, mode_t mode) {
  make_directories(file.parent_path());
  const fs::path temporary = beside(file);
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (fd.get() < 0) fail_system(errno, "{}: cannot create", temporary.string());
  const ssize_t written = ::write(fd.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    const int reason = written < 0 ? errno : ENOSPC;
    ::unlink(temporary.c_str());
    fail_system(reason, "{}: cannot write", temporary.string());
  }
  rename_over(temporary, file);
}

bool is_file_of(const fs::path& path, std::optional<std::uint64_t> size) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  return !size || static_cast<std::uint64_t>(status.st_size) == *size;
}

/// The content of a small file; nullopt when it can't be read.
std::optional<std::string> text_of(const fs::path& path) {
  if (!is_file_of(path, {})) return std::nullopt;
  try {
    return read_text_file(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Sorted objects: those that keep their order search all of it for every new name.
using Listing = nlohmann::json;

std::optional<RepoFile> file_of(const std::string& path, const Listing& item) {
  const auto text = [&item](const char* name) -> std::optional<std::string> {
    if (!item.contains(name) || item[name].is_null()) return std::nullopt;
    return item[name].get<std::string>();
  };
  if (!item.at("size").is_number_unsigned()) return std::nullopt;
  RepoFile file{.path = path,
                .size = item["size"].get<std::uint64_t>(),
                .blob_id = item.at("blob_id").get<std::string>(),
                .lfs_sha256 = text("lfs_sha256"),
                .xet_hash = text("xet_hash")};
  if (fault_of(file)) return std::nullopt;
  return file;
}

Json json_of(const RepoFile& file) {
  Json item = {{"size", file.size}, {"blob_id", file.blob_id}};
  if (file.lfs_sha256) {
    item["lfs_sha256"] = *file.lfs_sha256;
    item["lfs_size"] = file.size;
  }
  if (file.xet_hash) item["xet_hash"] = *file.xet_hash;
  return item;
}

/// Copies into place through a file beside it.
void place_copy(const fs::path& file, const fs::path& blob) {
  const fs::path temporary = beside(file);
  std::error_code error;
  fs::copy_file(blob, temporary, error);  // of a link, what it leads to
  if (error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    fail_system(error.value(), "{}: cannot be copied from {}", file.string(), blob.string());
  }
  rename_over(temporary, file);
}

bool knows_no_locks(int error_number) {
  return error_number == ENOLCK || error_number == ENOSYS || error_number == EOPNOTSUPP ||
         error_number == EINVAL;
}

}  // namespace

RepoCache::RepoCache(fs::path cache, Repo repo, bool symlinks)
    : cache_(std::move(cache)),
      repo_(std::move(repo)),
      folder_(cache_ / cache_folder_name(repo_)),
      symlinks_(symlinks) {}

fs::path RepoCache::snapshot(std::string_view commit) const {
  check_name(commit, "commit");
  return folder_ / "snapshots" / commit;
}

std::optional<std::string> RepoCache::commit_of(std::string_view revision) const {
  if (is_commit(revision)) return std::string(revision);
  check_name(revision, "revision");
  auto text = text_of(folder_ / "refs" / revision);
  if (!text) return std::nullopt;
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
  if (!is_commit(*text)) return std::nullopt;
  return text;
}

void RepoCache::remember(std::string_view revision, std::string_view commit) const {
  if (is_commit(revision)) return;
  check_name(revision, "revision");
  const fs::path file = folder_ / "refs" / revision;
  if (text_of(file) == commit) return;
  try {
    write_beside_and_rename(file, commit, 0666);
  } catch (const SystemError& error) {
    log::warning("the cache doesn't remember which commit {} is: {}", revision, error.what());
  }
}

std::optional<fs::path> RepoCache::find(std::string_view commit, std::string_view path) const {
  check_name(path, "path");
  fs::path file = snapshot(commit) / path;
  if (!is_file_of(file, {})) return std::nullopt;
  return file;
}

std::optional<fs::path> RepoCache::find(std::string_view commit, const RepoFile& file) const {
  check_name(file.path, "path");
  fs::path found = snapshot(commit) / file.path;
  if (!is_file_of(found, file.size)) return std::nullopt;
  return found;
}

std::optional<std::vector<RepoFile>> RepoCache::listing(std::string_view commit) const {
  check_name(commit, "commit");
  const auto text = text_of(folder_ / "trees" / fmt::format("{}.json", commit));
  if (!text) return std::nullopt;
  std::vector<RepoFile> files;
  try {
    const Listing json = Listing::parse(*text);
    if (json.at("format_version") != kListingFormat) return std::nullopt;
    for (const auto& [path, item] : json.at("files").items()) {
      auto file = file_of(path, item);
      if (!file) return std::nullopt;
      files.push_back(std::move(*file));
    }
  } catch (const Listing::exception&) {
    return std::nullopt;
  }
  return files;
}

void RepoCache::remember_listing(std::string_view commit,
                                 const std::vector<RepoFile>& files) const {
  check_name(commit, "commit");
  Json::object_t by_path;
  by_path.reserve(files.size());
  for (const RepoFile& file : files) by_path.push_back({file.path, json_of(file)});
  const Json json = {{"format_version", kListingFormat}, {"files", std::move(by_path)}};
  try {
    write_beside_and_rename(folder_ / "trees" / fmt::format("{}.json", commit),
                            to_python_json(json, 1), 0600);
  } catch (const SystemError& error) {
    log::warning("the cache doesn't remember the files of {}: {}", commit, error.what());
  }
}

std::optional<BlobLock> RepoCache::lock_blob(std::string_view etag,
                                             std::chrono::duration<double> timeout,
                                             const std::function<void()>& waiting) const {
  check_name(etag, "ETag");
  const fs::path file = cache_ / ".locks" / cache_folder_name(repo_) / fmt::format("{}.lock", etag);
  make_directories(file.parent_path());
  try {
    auto lock = FileLock::acquire(file, timeout, waiting);
    if (!lock) return std::nullopt;
    return BlobLock(std::move(lock));
  } catch (const SystemError& error) {
    if (!knows_no_locks(error.error_number())) throw;
    return BlobLock(std::nullopt);
  }
}

fs::path RepoCache::blob(std::string_view etag) const {
  check_name(etag, "ETag");
  return folder_ / "blobs" / etag;
}

bool RepoCache::has_blob(std::string_view etag, std::uint64_t size) const {
  return is_file_of(blob(etag), size);
}

fs::path RepoCache::incomplete_blob(std::string_view etag) const {
  fs::path file = blob(etag);
  if (!fs::exists(file.parent_path())) {
    make_directories(file.parent_path());
    if (const fs::path tag = cache_ / "CACHEDIR.TAG"; !fs::exists(tag))
      write_beside_and_rename(tag, kCacheTag, 0666);
  }
  file += fmt::format(".{}{}", random_hex(), kIncomplete);
  return file;
}

std::vector<fs::path> RepoCache::leftovers(std::string_view etag) const {
  const fs::path wanted = blob(etag);
  const std::string prefix = wanted.filename().string() + ".";
  std::vector<fs::path> found;
  std::error_code ended;
  for (fs::directory_iterator at(wanted.parent_path(), ended), end; !ended && at != end;
       at.increment(ended)) {
    const std::string name = at->path().filename().string();
    if (name.size() == prefix.size() + kRandomDigits + kIncomplete.size() &&
        name.starts_with(prefix) && name.ends_with(kIncomplete))
      found.push_back(at->path());
  }
  return found;
}

bool RepoCache::place_link(const fs::path& file, const fs::path& blob) const {
  const fs::path target = blob.lexically_relative(file.parent_path());
  if (::symlink(target.c_str(), file.c_str()) == 0) return true;
  if (errno == EEXIST) {
    const fs::path temporary = beside(file);
    if (::symlink(target.c_str(), temporary.c_str()) == 0) {
      rename_over(temporary, file);
      return true;
    }
  }
  // vfat, exfat and some network file systems have none.
  if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return false;
  fail_system(errno, "{}: cannot link to {}", file.string(), target.string());
}

void RepoCache::place(std::string_view commit, const std::vector<std::string>& paths,
                      std::string_view etag, bool kept) const {
  const fs::path content = blob(etag);
  bool links = symlinks_;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    check_name(paths[i], "path");
    const fs::path file = snapshot(commit) / paths[i];
    make_directories(file.parent_path());
    if (links) links = place_link(file, content);
    if (links) continue;
    if (kept || i + 1 < paths.size())
      place_copy(file, content);
    else
      rename_over(content, file);
  }
}

}  // namespace lerobot::hub
