#include "lerobot/streaming/dataset_place.h"

#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/home.h"
#include "lerobot/hub/range_client.h"
#include "lerobot/hub/url.h"
#include "lerobot/streaming/bucket_place.h"
#include "lerobot/streaming/http_payload.h"
#include "lerobot/streaming/hub_place.h"
#include "lerobot/streaming/local_payload.h"
#include "lerobot/streaming/remote_metadata.h"

namespace lerobot::streaming {
namespace {

namespace fs = std::filesystem;

class LocalPlace final : public DatasetPlace {
 public:
  LocalPlace(std::string repo_id, fs::path folder)
      : DatasetPlace(std::move(repo_id), local_data_root(folder),
                     std::make_shared<LocalPayload>(folder)),
        folder_(std::move(folder)) {}

  bool is_remote() const override { return false; }
  void with_metadata(const std::function<void(const fs::path&)>& use) override { use(folder_); }
  /// What is missing is reported by whoever opens it.
  fs::path download(const dataset::DatasetFiles&, std::span<const std::int64_t>) override {
    return folder_;
  }

 private:
  const fs::path folder_;
};

/// Any HTTP server: no listing, no commits.
class HttpPlace final : public DatasetPlace {
 public:
  HttpPlace(std::string repo_id, const std::string& root, std::shared_ptr<hub::RangeClient> client,
            const PlaceOptions& options)
      : DatasetPlace(std::move(repo_id), root, std::make_shared<HttpPayload>(root, client)),
        client_(std::move(client)),
        mirror_options_{.lerobot_home = options.lerobot_home,
                        .lock_timeout = options.lock_timeout,
                        .waiting = options.waiting} {}

  void with_metadata(const std::function<void(const fs::path&)>& use) override {
    const MetadataMirror mirror = mirror_metadata(data_root(), *client_, mirror_options_);
    use(mirror.root);
  }

  fs::path download(const dataset::DatasetFiles&, std::span<const std::int64_t>) override {
    fail_usage("--dataset.root={} can only be streamed: add --dataset.streaming=true",
               hub::printable_url(data_root()));
  }

 private:
  const std::shared_ptr<hub::RangeClient> client_;
  const MetadataMirrorOptions mirror_options_;
};

/// The folder that --dataset.root names.
fs::path checked_folder(const std::string& root) {
  fs::path folder = hub::expand_user(root);
  if (!fs::is_directory(folder))
    fail(
        "{} is not a folder; expected the root of a LeRobotDataset v3 (with meta/, data/ and "
        "videos/)",
        root);
  return folder;
}

/// An address of a repository says everything; what is given beside it must agree.
void check_fits(const DatasetAddress& address, const hub::Location& location) {
  if (address.type == hub::RepoType::kBucket)
    fail_usage("{} is a dataset and no Bucket: leave the repository's type out", location.root);
  if (!address.repo_id.empty() && address.repo_id != location.repo_id)
    fail_usage("{} does not match the repository {}: leave one of them out", location.root,
               address.repo_id);
  if (address.revision && location.revision && *address.revision != *location.revision)
    log::warning("{} is read; the revision {} is recorded only", location.root, *address.revision);
}

}  // namespace

std::string DatasetPlace::publish(const SidecarIdentity&, const fs::path&) {
  fail_usage("--push currently supports only hf:// data roots, found {}", data_root_);
}

std::optional<fs::path> local_root(const DatasetAddress& address, const fs::path& lerobot_home) {
  if (address.root) {
    if (hub::classify_location(*address.root).kind != hub::LocationKind::kLocal)
      return std::nullopt;
    return checked_folder(*address.root);
  }
  if (address.type == hub::RepoType::kBucket) return std::nullopt;
  fs::path folder = lerobot_home / address.repo_id;
  if (!dataset::is_local_dataset(folder)) return std::nullopt;
  return folder;
}

std::unique_ptr<DatasetPlace> open_place(const DatasetAddress& address,
                                         const PlaceOptions& options) {
  if (const auto folder = local_root(address, options.lerobot_home))
    return std::make_unique<LocalPlace>(address.repo_id, *folder);
  if (!address.root) {
    if (address.type == hub::RepoType::kBucket) return open_bucket(address.repo_id, options);
    return open_hub_dataset({.repo_id = address.repo_id,
                             .revision = address.revision,
                             .folder = "",
                             .pinned = address.pinned},
                            options);
  }
  const hub::Location location = hub::classify_location(*address.root);
  switch (location.kind) {
    case hub::LocationKind::kHttp: {
      hub::RangeClientOptions client;
      client.connections = options.connections;
      client.subranges = options.subranges;
      return std::make_unique<HttpPlace>(address.repo_id, location.root,
                                         std::make_shared<hub::RangeClient>(client), options);
    }
    case hub::LocationKind::kHfBucket:
      return open_bucket(hub::bucket_of_root(location, address.repo_id), options);
    case hub::LocationKind::kHfDataset:
      check_fits(address, location);
      return open_hub_dataset({.repo_id = location.repo_id,
                               .revision = location.revision ? location.revision : address.revision,
                               .folder = location.path,
                               .pinned = address.pinned},
                              options);
    case hub::LocationKind::kLocal:
    case hub::LocationKind::kHfOther:
    case hub::LocationKind::kOther:
      break;
  }
  fail_usage(
      "{}: expected a folder, http(s)://, hf://datasets/OWNER/NAME[@REVISION] or "
      "hf://buckets/OWNER/NAME",
      *address.root);
}

}  // namespace lerobot::streaming
