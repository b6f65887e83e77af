// Where a dataset is: a folder, an HTTP server, a repository of the Hub, a Bucket. One object gives
// its metadata, its files and its sidecar, so that all of them are of the same state.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lerobot/dataset/hub_dataset.h"
#include "lerobot/hub/environment.h"
#include "lerobot/hub/location.h"
#include "lerobot/hub/repo.h"
#include "lerobot/streaming/payload.h"
#include "lerobot/streaming/sidecar.h"

namespace lerobot::streaming {

/// What a command line says about it.
struct DatasetAddress {
  std::string repo_id;
  hub::RepoType type = hub::RepoType::kDataset;  ///< or kBucket
  std::optional<std::string> root;               ///< a folder or URI
  std::optional<std::string> revision;           ///< of a repository
  /// What a repository's revision was when the run began (DatasetPlace::pinned()).
  std::optional<dataset::PinnedRevision> pinned;
};

struct PlaceOptions {
  hub::HubEnvironment hub;
  /// Caches of metadata and sidecars.
  std::filesystem::path lerobot_home;
  std::size_t connections = 8;
  std::size_t subranges = 1;
  /// How long another process that copies the same metadata is waited for.
  std::chrono::duration<double> lock_timeout{1800.0};
  /// Called now and then during long work; may throw to give up.
  std::function<void()> waiting;
};

class DatasetPlace {
 public:
  DatasetPlace(std::string repo_id, std::string data_root, std::shared_ptr<Payload> payload)
      : repo_id_(std::move(repo_id)),
        data_root_(std::move(data_root)),
        payload_(std::move(payload)) {}
  virtual ~DatasetPlace() = default;
  DatasetPlace(const DatasetPlace&) = delete;
  DatasetPlace& operator=(const DatasetPlace&) = delete;

  const std::string& repo_id() const { return repo_id_; }
  /// The root of the files as a sidecar records it: of a repository of the Hub pinned to a commit.
  const std::string& data_root() const { return data_root_; }
  const std::shared_ptr<Payload>& payload() const { return payload_; }
  virtual bool is_remote() const { return true; }
  /// Of a repository; nullopt elsewhere.
  virtual std::optional<dataset::PinnedRevision> pinned() const { return std::nullopt; }

  /// Calls `use` with a folder that holds meta/, which stays as it is meanwhile.
  virtual void with_metadata(const std::function<void(const std::filesystem::path&)>& use) = 0;

  /// Brings the data and video files of these episodes to this machine and returns the root under
  /// which they lie. Throws UsageError for a place that can only be streamed.
  virtual std::filesystem::path download(const dataset::DatasetFiles& files,
                                         std::span<const std::int64_t> episodes) = 0;

  /// Writes the sidecar that is published for `identity` to `file`; false when there is none.
  virtual bool fetch_published(const SidecarIdentity&, const std::filesystem::path&) {
    return false;
  }
  /// Publishes a complete sidecar and returns where it is. Throws UsageError where nothing can be
  /// published.
  virtual std::string publish(const SidecarIdentity& identity, const std::filesystem::path& file);

 private:
  const std::string repo_id_;
  const std::string data_root_;
  const std::shared_ptr<Payload> payload_;
};

/// Opens the place that the address means: its root, else the Bucket, else the folder under
/// lerobot_home, else the repository on the Hub, whose revision is pinned to a commit and whose
/// metadata is downloaded. Throws UsageError for an address that can't be, HubError and Error for a
/// place that can't be read.
std::unique_ptr<DatasetPlace> open_place(const DatasetAddress& address,
                                         const PlaceOptions& options);

/// The folder of a dataset that is on this machine already: address.root, or
/// lerobot_home/OWNER/NAME. nullopt when it has to be fetched.
std::optional<std::filesystem::path> local_root(const DatasetAddress& address,
                                                const std::filesystem::path& lerobot_home);

}  // namespace lerobot::streaming
