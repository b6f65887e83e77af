#include "lerobot/streaming/bucket_place.h"

#include <map>
#include <utility>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/hub/bucket.h"
#include "lerobot/hub/bucket_mirror.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/range_client.h"
#include "lerobot/streaming/http_payload.h"

namespace lerobot::streaming {
namespace {

constexpr const char* kSidecarFolder = "meta/mp4-sidecars";

/// One listing, taken when the run began.
using Listing = std::vector<hub::BucketFile>;

/// Sizes and fingerprints come from the listing: no question for each video.
class BucketPayload final : public Payload {
 public:
  BucketPayload(const hub::Repo& bucket, const std::string& root, const Listing& listing,
                std::shared_ptr<hub::RangeClient> client)
      : bucket_(bucket), files_(root, std::move(client)) {
    for (const hub::BucketFile& file : listing) listing_.emplace(file.path, file);
  }

  std::string describe(std::string_view path) const override { return files_.describe(path); }
  std::uint64_t size(const std::string& path) override { return listed(path).size; }
  std::optional<std::string> fingerprint(const std::string& path) override {
    return listed(path).xet_hash;
  }
  void read(std::span<const ByteRange> ranges) override { files_.read(ranges); }
  void cancel() override { files_.cancel(); }
  std::uint64_t bytes_read() const override { return files_.bytes_read(); }

 private:
  const hub::BucketFile& listed(const std::string& path) const {
    const auto found = listing_.find(path);
    if (found == listing_.end())
      fail("{}: Bucket is missing source video: {}; upload it, or correct meta/", describe_bucket(),
           path);
    return found->second;
  }
  std::string describe_bucket() const { return hub::describe(bucket_); }

  const hub::Repo bucket_;
  HttpPayload files_;
  std::map<std::string, hub::BucketFile, std::less<>> listing_;
};

class BucketPlace final : public DatasetPlace {
 public:
  BucketPlace(hub::Repo bucket, Listing listing, std::shared_ptr<hub::HubClient> client,
              std::shared_ptr<hub::RangeClient> ranges, std::shared_ptr<Payload> payload,
              const PlaceOptions& options)
      : DatasetPlace(bucket.id, "hf://buckets/" + bucket.id, std::move(payload)),
        bucket_(std::move(bucket)),
        listing_(std::move(listing)),
        client_(std::move(client)),
        ranges_(std::move(ranges)),
        folder_(options.lerobot_home / "hub" / hub::cache_folder_name(bucket_)),
        mirror_options_{
            .progress = hub::log_download(fmt::format("the metadata of {}", bucket_.id)),
            .lock_timeout = options.lock_timeout,
            .waiting = options.waiting} {}

  void with_metadata(const std::function<void(const fs::path&)>& use) override {
    const auto lock = hub::mirror_bucket(client_->endpoint(), bucket_, listing_, "meta", folder_,
                                         *ranges_, mirror_options_);
    if (!fs::exists(folder_ / "meta" / "info.json"))
      fail("{}: it has no meta/info.json, so there is no LeRobotDataset at its root",
           hub::describe(bucket_));
    use(folder_);
  }

  fs::path download(const dataset::DatasetFiles&, std::span<const std::int64_t>) override {
    fail_usage("{}: Buckets can only be streamed: add --dataset.streaming=true",
               hub::describe(bucket_));
  }

  bool fetch_published(const SidecarIdentity& identity, const fs::path& file) override {
    const std::string path = published_path(identity);
    for (const hub::BucketFile& listed : listing_)
      if (listed.path == path) {
        hub::fetch_bucket_file(client_->endpoint(), bucket_, listed, file, *ranges_);
        return true;
      }
    return false;
  }

  std::string publish(const SidecarIdentity& identity, const fs::path& file) override {
    const std::string path = published_path(identity);
    const hub::UploadFile upload{path, file};
    hub::upload_to_bucket(*client_, bucket_, {&upload, 1},
                          {.progress = hub::log_upload("the MP4 sidecar")});
    return fmt::format("{}/{}", data_root(), path);
  }

 private:
  static std::string published_path(const SidecarIdentity& identity) {
    return fmt::format("{}/{}", kSidecarFolder, sidecar_file_name(identity));
  }

  const hub::Repo bucket_;
  const Listing listing_;
  const std::shared_ptr<hub::HubClient> client_;
  const std::shared_ptr<hub::RangeClient> ranges_;
  const fs::path folder_;
  const hub::BucketMirrorOptions mirror_options_;
};

}  // namespace

std::unique_ptr<DatasetPlace> open_bucket(const std::string& bucket_id,
                                          const PlaceOptions& options) {
  hub::Repo bucket = hub::make_repo(hub::RepoType::kBucket, bucket_id);
  auto client = std::make_shared<hub::HubClient>(options.hub);
  Listing listing = hub::list_bucket(*client, bucket);
  auto ranges = std::make_shared<hub::RangeClient>(
      hub::range_options(options.hub, options.connections, options.subranges));
  auto payload = std::make_shared<BucketPayload>(
      bucket, hub::resolve_url(client->endpoint(), bucket, "", ""), listing, ranges);
  return std::make_unique<BucketPlace>(std::move(bucket), std::move(listing), std::move(client),
                                       std::move(ranges), std::move(payload), options);
}

}  // namespace lerobot::streaming
