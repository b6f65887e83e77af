#include "lerobot/hub/bucket.h"

#include <algorithm>
#include <map>
#include <set>

#include "lerobot/base/error.h"
#include "lerobot/hub/body_source.h"
#include "lerobot/hub/path_patterns.h"
#include "lerobot/hub/upload_content.h"
#include "lerobot/hub/upload_progress.h"
#include "lerobot/hub/upload_request.h"
#include "lerobot/hub/url.h"
#include "lerobot/hub/xet/xet_upload.h"

namespace lerobot::hub {
namespace {

/// Paths or changes in one call.
constexpr std::size_t kBatch = 1000;
constexpr std::size_t kNamedFailures = 3;
constexpr std::size_t kHashDigits = 64;
constexpr std::size_t kLongestText = 200;

bool is_xet_hash(const std::string& text) {
  return text.size() == kHashDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

BucketFile file_of(const Json& entry, const Subject& subject) {
  BucketFile file{.path = text_field(entry, "path", subject),
                  .size = count_field(entry, "size", subject),
                  .xet_hash = text_field(entry, "xetHash", subject),
                  .uploaded_at = {}};
  if (!is_repo_path(file.path))
    fail_answer(subject, fmt::format("the listing holds the path \"{}\"",
                                     printable_text(file.path, kLongestText)));
  if (!is_xet_hash(file.xet_hash))
    fail_answer(subject, fmt::format("the hash of {} is not one of 64 digits", file.path));
  if (const Json time = entry.value("uploadedAt", Json()); time.is_string())
    file.uploaded_at = time.get<std::string>();
  return file;
}

bool is_file(const Json& entry) {
  return entry.is_object() && entry.value("type", Json()) == "file";
}

/// What the Bucket holds at these paths.
std::map<std::string, BucketFile> find_files(HubClient& client, const Repo& bucket,
                                             std::span<const UploadFile> files) {
  const Subject subject{.repo = bucket};
  std::map<std::string, BucketFile> found;
  for (std::size_t at = 0; at < files.size(); at += kBatch) {
    Json paths = Json::array();
    for (const UploadFile& file : files.subspan(at, std::min(kBatch, files.size() - at)))
      paths.push_back(file.path);
    const Json answer =
        client.call_json({.method = "POST",
                          .url = api_url(client.endpoint(), bucket) + "/paths-info",
                          .body = Json::object({{"paths", std::move(paths)}}).dump(),
                          .content_type = "application/json"},
                         subject);
    if (!answer.is_array()) fail_answer(subject, "paths-info is no array");
    for (const Json& entry : answer)
      if (is_file(entry)) {
        BucketFile file = file_of(entry, subject);
        found.emplace(file.path, std::move(file));
      }
  }
  return found;
}

/// Asks for changes that the Hub reports one by one.
class Changes {
 public:
  Changes(HubClient& client, const Repo& bucket)
      : client_(client), bucket_(bucket), subject_{.repo = bucket, .action = "upload to it"} {}

  void add(const UploadContent& content, const xet::XetHash& hash) {
    lines_ += Json{{"type", "addFile"},
                   {"path", content.path()},
                   {"xetHash", hash.hex()},
                   {"mtime", content.modified_ms()}}
                  .dump() +
              "\n";
    if (++count_ == kBatch) send();
  }

  void send() {
    if (count_ == 0) return;
    TextBody body(std::move(lines_));
    const UploadRequest request{.method = "POST",
                                .url = api_url(client_.endpoint(), bucket_) + "/batch",
                                .headers = {"Content-Type: application/x-ndjson"},
                                .body = &body,
                                .credentials = &client_.environment().credentials,
                                .subject = subject_};
    const UploadAnswer answer = send_upload(client_, request);
    check_failures(answer);
    if (answer.head.status >= 400)
      fail_hub(subject_, answer.head, answer.body, client_.endpoint(),
               client_.environment().credentials);
    lines_.clear();
    count_ = 0;
  }

 private:
  /// Failed changes stand in the body, whether all failed (422) or only some (200).
  void check_failures(const UploadAnswer& answer) const {
    const Json json = Json::parse(answer.body, nullptr, false);
    const Json failed = json.is_object() ? json.value("failed", Json()) : Json();
    if (!failed.is_array() || failed.empty()) return;
    std::string words;
    for (std::size_t i = 0; i < std::min(failed.size(), kNamedFailures); ++i)
      words += fmt::format("{}{}: {}", i == 0 ? "" : "; ", text_of(failed[i], "path"),
                           text_of(failed[i], "error"));
    if (failed.size() > kNamedFailures)
      words += fmt::format("; and {} more", failed.size() - kNamedFailures);
    throw HubError(HubFault::kRefused, answer.head.status,
                   fmt::format("{}: {} of {} uploaded files were not added ({}); upload them again",
                               describe(bucket_), failed.size(), count_, words));
  }

  static std::string text_of(const Json& object, const char* name) {
    const Json value = object.is_object() ? object.value(name, Json()) : Json();
    return value.is_string() ? printable_text(value.get<std::string>(), kLongestText)
                             : std::string("?");
  }

  HubClient& client_;
  const Repo& bucket_;
  const Subject subject_;
  std::string lines_;
  std::size_t count_ = 0;
};

void upload_changed(HubClient& client, const Repo& bucket,
                    std::span<const UploadContent* const> contents, UploadMeter& meter) {
  std::uint64_t bytes = 0;
  for (const UploadContent* content : contents) bytes += content->size();
  meter.expect(contents.size(), bytes);
  xet::XetServer server(client, api_url(client.endpoint(), bucket) + "/xet-write-token",
                        {.repo = bucket, .action = "upload to it"});
  const std::vector<xet::XetHash> hashes = xet::upload_contents(server, contents, meter);
  Changes changes(client, bucket);
  for (std::size_t i = 0; i < contents.size(); ++i) changes.add(*contents[i], hashes[i]);
  changes.send();
}

void check_files(const Repo& bucket, std::span<const UploadFile> files) {
  check_internal(bucket.type == RepoType::kBucket, "objects live in Buckets");
  std::set<std::string_view> paths;
  for (const UploadFile& file : files) {
    check_upload_path(file.path);
    if (!paths.insert(file.path).second)
      fail("\"{}\" is given twice for one upload to {}", file.path, describe(bucket));
  }
}

}  // namespace

std::vector<BucketFile> list_bucket(HubClient& client, const Repo& bucket,
                                    const std::string& prefix) {
  std::string below = prefix;
  while (below.ends_with('/')) below.pop_back();
  std::string url = api_url(client.endpoint(), bucket) + "/tree";
  if (!below.empty()) url += "/" + percent_encode(below);
  const Subject subject{.repo = bucket, .path = below};
  std::vector<BucketFile> files;
  try {
    for (const Json& entry : client.call_pages({.url = url + "?recursive=true"}, subject)) {
      if (!is_file(entry)) continue;
      BucketFile file = file_of(entry, subject);
      if (below.empty() || file.path.starts_with(below + "/")) files.push_back(std::move(file));
    }
  } catch (const HubError& error) {
    if (error.fault() != HubFault::kEntryNotFound) throw;  // an empty folder is none
  }
  std::sort(files.begin(), files.end(),
            [](const BucketFile& a, const BucketFile& b) { return a.path < b.path; });
  return files;
}

void upload_to_bucket(HubClient& client, const Repo& bucket, std::span<const UploadFile> files,
                      const UploadOptions& options) {
  check_files(bucket, files);
  const std::vector<UploadContent> contents(files.begin(), files.end());
  UploadMeter meter(options);
  meter.run([&] {
    const auto there = find_files(client, bucket, files);
    std::vector<const UploadContent*> changed;
    for (const UploadContent& content : contents) {
      const auto at = there.find(content.path());
      // Hashing is cheaper than sending, but only the same size can be the same content.
      const bool same = at != there.end() && at->second.size == content.size() &&
                        xet::content_hash(content, meter).hex() == at->second.xet_hash;
      if (!same) changed.push_back(&content);
    }
    upload_changed(client, bucket, changed, meter);
  });
}

}  // namespace lerobot::hub
