#include "lerobot/streaming/hub_place.h"

#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/range_client.h"
#include "lerobot/hub/upload.h"
#include "lerobot/streaming/http_payload.h"

namespace lerobot::streaming {
namespace {

/// "hf://datasets/OWNER/NAME@COMMIT[/FOLDER]": what a sidecar records.
std::string pinned_root(const dataset::HubDataset& dataset) {
  std::string root = fmt::format("hf://datasets/{}@{}", dataset.repo.id, dataset.pinned.commit);
  if (!dataset.folder.empty()) root += "/" + dataset.folder;
  return root;
}

class HubPlace final : public DatasetPlace {
 public:
  HubPlace(dataset::HubDataset dataset, std::shared_ptr<hub::HubClient> client,
           std::shared_ptr<Payload> payload, const PlaceOptions& options)
      : DatasetPlace(dataset.repo.id, pinned_root(dataset), std::move(payload)),
        dataset_(std::move(dataset)),
        client_(std::move(client)),
        lerobot_home_(options.lerobot_home),
        waiting_(options.waiting) {}

  std::optional<dataset::PinnedRevision> pinned() const override { return dataset_.pinned; }

  void with_metadata(const std::function<void(const fs::path&)>& use) override {
    use(dataset_.root);
  }

  fs::path download(const dataset::DatasetFiles& files,
                    std::span<const std::int64_t> episodes) override {
    dataset::fetch_episodes(*client_, dataset_, files, episodes, waiting_);
    return dataset_.root;
  }

  bool fetch_published(const SidecarIdentity& identity, const fs::path& file) override {
    try {
      const std::string path = published_path(identity);
      hub::SnapshotOptions options;
      options.folder = fs::path(path).parent_path().string();
      options.wanted = [&path](std::string_view name) { return name == path; };
      options.progress = hub::log_download("the published MP4 sidecar");
      const hub::Snapshot snapshot = hub::download_snapshot(*client_, dataset_.repo, kSidecarBranch,
                                                            lerobot_home_ / "hub", options);
      if (!fs::exists(snapshot.folder / path)) return false;
      fs::copy_file(fs::canonical(snapshot.folder / path), file);
      return true;
    } catch (const hub::HubError& error) {
      if (!means_none(error.fault())) throw;
      return false;
    }
  }

  std::string publish(const SidecarIdentity& identity, const fs::path& file) override {
    const std::string path = published_path(identity);
    hub::create_branch(*client_, dataset_.repo, kSidecarBranch, dataset_.pinned.commit);
    const hub::CommitResult result = hub::upload_commit(
        *client_, dataset_.repo,
        {.branch = kSidecarBranch,
         .message = fmt::format("Add the MP4 sidecar of {}", dataset_.pinned.commit),
         .files = {{path, file}}},
        {.progress = hub::log_upload("the MP4 sidecar")});
    if (result.unchanged) log::info("The branch {} has this sidecar already", kSidecarBranch);
    return fmt::format("hf://datasets/{}@{}/{}", dataset_.repo.id, kSidecarBranch, path);
  }

 private:
  /// A tag and its commit share one file: its name is made with the commit as revision.
  std::string published_path(SidecarIdentity identity) const {
    identity.revision = dataset_.pinned.commit;
    const std::string path = "meta/mp4-sidecars/" + sidecar_file_name(identity);
    return dataset_.folder.empty() ? path : fmt::format("{}/{}", dataset_.folder, path);
  }

  static bool means_none(hub::HubFault fault) {
    return fault == hub::HubFault::kRevisionNotFound || fault == hub::HubFault::kEntryNotFound ||
           fault == hub::HubFault::kOffline;
  }

  const dataset::HubDataset dataset_;
  const std::shared_ptr<hub::HubClient> client_;
  const fs::path lerobot_home_;
  const std::function<void()> waiting_;
};

}  // namespace

std::unique_ptr<DatasetPlace> open_hub_dataset(const dataset::HubDatasetAddress& address,
                                               const PlaceOptions& options) {
  auto client = std::make_shared<hub::HubClient>(options.hub);
  dataset::HubDataset dataset = dataset::fetch_metadata(*client, address);
  auto payload = std::make_shared<HttpPayload>(
      hub::resolve_url(client->endpoint(), dataset.repo, dataset.pinned.commit, dataset.folder),
      std::make_shared<hub::RangeClient>(
          hub::range_options(options.hub, options.connections, options.subranges)));
  return std::make_unique<HubPlace>(std::move(dataset), std::move(client), std::move(payload),
                                    options);
}

}  // namespace lerobot::streaming
