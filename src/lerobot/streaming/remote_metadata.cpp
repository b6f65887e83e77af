#include "lerobot/streaming/remote_metadata.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include "lerobot/base/digest.h"
#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/dataset/dataset_info.h"
#include "lerobot/hub/location.h"
#include "lerobot/hub/url.h"

namespace lerobot::streaming {
namespace {

constexpr std::size_t kLongestName = 80;
constexpr std::size_t kDigestDigits = 16;
/// Episode files that are asked for at once: one latency for as many, at the price of some answers
/// 404 behind the last.
constexpr int kProbesAtOnce = 8;

constexpr const char* kInfo = "info.json";
constexpr const char* kStats = "stats.json";
constexpr const char* kTasks = "tasks.parquet";

std::string episodes_file(int chunk, int file) {
  return fmt::format("episodes/chunk-{:03d}/file-{:03d}.parquet", chunk, file);
}

/// What is known of a copied file.
struct CopiedFile {
  std::uint64_t bytes = 0;
  std::optional<std::string> etag;
};
using CopiedFiles = std::map<std::string, CopiedFile>;  // by path in meta/

/// The record beside the copy. It is removed before a copy is touched and written when it is
/// complete. Empty when there is none, or it isn't ours.
CopiedFiles read_record(const fs::path& path) {
  CopiedFiles files;
  try {
    const Json json = read_json_file(path);
    for (const auto& [name, file] : json.at("files").items()) {
      CopiedFile& copied = files[name];
      copied.bytes = file.at("bytes").get<std::uint64_t>();
      if (file.contains("etag")) copied.etag = file.at("etag").get<std::string>();
    }
  } catch (const std::exception&) {  // absent or damaged: everything is fetched
    files.clear();
  }
  return files;
}

void write_record(const fs::path& path, const std::string& root_url, const CopiedFiles& files) {
  Json json = {{"root", root_url}, {"files", Json::object()}};
  for (const auto& [name, file] : files) {
    json["files"][name] = {{"bytes", file.bytes}};
    if (file.etag) json["files"][name]["etag"] = *file.etag;
  }
  write_file_atomic(path, to_python_json(json, 2) + "\n");
}

/// One pass over a dataset's meta/ folder, into a folder of its own.
class Copy {
 public:
  Copy(std::string root_url, hub::RangeClient& client, fs::path current, fs::path staging,
       CopiedFiles known)
      : root_url_(std::move(root_url)),
        client_(client),
        current_(std::move(current)),
        staging_(std::move(staging)),
        known_(std::move(known)) {}

  CopiedFiles run() {
    // With these, a small dataset is there after one round trip.
    fetch({kInfo, kStats, kTasks, episodes_file(0, 0), episodes_file(0, 1), episodes_file(1, 0)});
    require(kInfo, "so this is not the root of a LeRobotDataset");
    require(kTasks, "so the dataset is not complete");
    require(episodes_file(0, 0), "so the dataset is not complete");
    copy_if_there(kStats);
    for (int chunk = 0; copy_chunk(chunk);) ++chunk;
    remove_strays();
    return std::move(copied_);
  }

 private:
  std::string url(const std::string& name) const {
    return fmt::format("{}/meta/{}", root_url_, name);
  }

  bool copy_if_there(const std::string& name) {
    if (!seen_.contains(name)) fetch({name});
    const auto& found = seen_.at(name);
    if (found) copied_[name] = *found;
    return found.has_value();
  }

  void require(const std::string& name, const char* consequence) {
    if (copy_if_there(name)) return;
    // An old version has other files: that is then what is wrong.
    const std::string info_url = hub::printable_url(url(kInfo));
    if (copied_.contains(kInfo))
      dataset::parse_dataset_info(parse_json(read_text_file(staging_ / kInfo), info_url), info_url);
    fail("{}: is missing, {}; check the URL of the dataset", hub::printable_url(url(name)),
         consequence);
  }

  /// False when the chunk has no file.
  bool copy_chunk(int chunk) {
    for (int file = 0;; ++file) {
      if (!seen_.contains(episodes_file(chunk, file))) {
        std::vector<std::string> names;
        // The first file of a chunk tells whether there is one; it alone is asked for.
        for (int i = 0; i < (file == 0 ? 1 : kProbesAtOnce); ++i)
          names.push_back(episodes_file(chunk, file + i));
        fetch(names);
      }
      if (!copy_if_there(episodes_file(chunk, file))) return file > 0;
    }
  }

  void fetch(const std::vector<std::string>& names) {
    std::vector<hub::DocumentRequest> requests;
    for (const std::string& name : names) {
      hub::DocumentRequest request{.url = url(name)};
      const auto known = known_.find(name);
      if (known != known_.end() && is_intact(current_ / name, known->second))
        request.known_etag = known->second.etag;
      // Probes end at a missing file, and storages that may not be listed call it forbidden. A
      // wrong end can't go unnoticed: the table of episodes must have info.json's number of rows.
      request.denied_means_missing = name != kInfo && name != kTasks && name != episodes_file(0, 0);
      requests.push_back(std::move(request));
    }
    auto documents = client_.get(requests);
    for (std::size_t i = 0; i < names.size(); ++i)
      seen_[names[i]] = documents[i] ? std::optional(stage(names[i], *documents[i])) : std::nullopt;
  }

  static bool is_intact(const fs::path& path, const CopiedFile& file) {
    std::error_code error;
    return fs::file_size(path, error) == file.bytes && !error;
  }

  CopiedFile stage(const std::string& name, const hub::Document& document) {
    const fs::path path = staging_ / name;
    fs::create_directories(path.parent_path());
    if (document.unchanged) {
      std::error_code error;
      fs::create_hard_link(current_ / name, path, error);
      if (error) fs::copy_file(current_ / name, path);
      return known_.at(name);
    }
    FileWriter file(path);
    file.write(document.body);
    file.commit();
    return {document.body.size(), document.etag};
  }

  /// Files that were fetched ahead, behind a gap.
  void remove_strays() {
    for (const auto& [name, found] : seen_)
      if (found && !copied_.contains(name)) fs::remove(staging_ / name);
  }

  const std::string root_url_;
  hub::RangeClient& client_;
  const fs::path current_;
  const fs::path staging_;
  const CopiedFiles known_;
  std::map<std::string, std::optional<CopiedFile>> seen_;
  CopiedFiles copied_;
};

/// True when the copy was completed after `begin`: by a process that this one waited for.
bool completed_since(const fs::path& record, fs::file_time_type begin) {
  std::error_code error;
  const auto time = fs::last_write_time(record, error);
  return !error && time >= begin;
}

void refresh_copy(const fs::path& folder, const std::string& root_url, hub::RangeClient& client) {
  const fs::path record = folder / "mirror.json";
  const fs::path current = folder / "meta";
  const fs::path staging = folder / "meta.new";
  const fs::path replaced = folder / "meta.old";
  fs::remove_all(staging);
  fs::remove_all(replaced);
  fs::create_directories(staging);
  try {
    const CopiedFiles copied = Copy(root_url, client, current, staging, read_record(record)).run();
    fs::remove(record);
    if (fs::exists(current)) fs::rename(current, replaced);
    fs::rename(staging, current);
    sync_directory(folder);
    write_record(record, hub::printable_url(root_url), copied);
    fs::remove_all(replaced);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(staging, ignored);
    throw;
  }
}

/// The part of a name that people recognise; the digest makes it unique.
std::string readable_name(const std::string& url) {
  std::string name;
  for (const char c : url.substr(url.find("://") + 3)) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_';
    if (kept)
      name += c;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return name.substr(0, kLongestName);
}

}  // namespace

fs::path metadata_mirror_path(const fs::path& lerobot_home, const std::string& root_url) {
  const std::string url = hub::printable_url(hub::classify_location(root_url).root);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(url.data());
  const std::string digest = sha256_hex({bytes, url.size()}).substr(0, kDigestDigits);
  return lerobot_home / "streaming-metadata" / fmt::format("{}-{}", readable_name(url), digest);
}

MetadataMirror mirror_metadata(const std::string& root_url, hub::RangeClient& client,
                               const MetadataMirrorOptions& options) {
  const auto begin = fs::file_time_type::clock::now();
  const hub::Location location = hub::classify_location(root_url);
  if (location.kind != hub::LocationKind::kHttp)
    fail_usage("{}: expected http://HOST/PATH or https://HOST/PATH", root_url);
  const fs::path folder = metadata_mirror_path(options.lerobot_home, root_url);
  constexpr const char* kRemedy = "check permissions and free space in HF_LEROBOT_HOME";
  try {
    fs::create_directories(folder);
    auto lock = FileLock::acquire(folder / "mirror.lock", options.lock_timeout, options.waiting);
    if (!lock)
      fail(
          "timed out after {:g} s waiting for another process that copies the metadata of {} (lock "
          "{}); check that it is healthy",
          options.lock_timeout.count(), hub::printable_url(root_url),
          (folder / "mirror.lock").string());
    if (!completed_since(folder / "mirror.json", begin))
      refresh_copy(folder, location.root, client);
    return {folder, std::move(*lock)};
  } catch (const fs::filesystem_error& error) {
    fail("cannot keep a copy of the dataset's metadata: {}; {}", error.what(), kRemedy);
  } catch (const SystemError& error) {
    throw SystemError(
        fmt::format("cannot keep a copy of the dataset's metadata: {}; {}", error.what(), kRemedy),
        error.error_number());
  }
}

}  // namespace lerobot::streaming
