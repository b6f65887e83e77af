// A LeRobotDataset in a repository of the Hub: which revision is read, and which of its files.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "lerobot/dataset/dataset_files.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo_info.h"
#include "lerobot/hub/snapshot.h"

namespace lerobot::dataset {

/// The version of the format that is read here, and the tag that a dataset of it has.
inline constexpr const char* kDatasetVersion = "v3.0";

/// The branch or tag that `wanted` (vX.Y) means: itself, else the highest of the same major that is
/// not above it, with a warning. Throws Error when the repository has no version tags, only older
/// or only newer ones.
std::string choose_version(const hub::Refs& refs, const std::string& repo_id,
                           const std::string& wanted);

/// A revision and the commit that it was when the run began: all ranks read that one.
struct PinnedRevision {
  std::string revision;  ///< a tag, branch or commit
  std::string commit;
};

/// What is to be read.
struct HubDatasetAddress {
  std::string repo_id;
  std::optional<std::string> revision;   ///< null: kDatasetVersion, as choose_version() has it
  std::string folder;                    ///< in the repository; empty: its root
  std::optional<PinnedRevision> pinned;  ///< nothing is to be resolved any more
};

/// One commit of a dataset's repository, in the cache.
struct HubDataset {
  hub::Repo repo;
  PinnedRevision pinned;
  std::string folder;
  std::filesystem::path root;  ///< of the dataset in the snapshot; holds meta/
};

/// Pins the dataset's revision to a commit and brings meta/ into lerobot_home()/hub. Off the
/// network, what is there serves. Throws HubError, and Error as choose_version() does.
HubDataset fetch_metadata(hub::HubClient& client, const HubDatasetAddress& address);

/// Brings the data and video files of these episodes into the snapshot; asks nothing when they are
/// there in their sizes. `waiting` is called several times a second and may throw to give up.
void fetch_episodes(hub::HubClient& client, const HubDataset& dataset, const DatasetFiles& files,
                    std::span<const std::int64_t> episodes,
                    const std::function<void()>& waiting = {});

/// The data and video files of these episodes, relative to the dataset's root.
std::set<std::string, std::less<>> files_of_episodes(const DatasetFiles& files,
                                                     std::span<const std::int64_t> episodes);

/// Whether `root` is the whole folder of a dataset and not what an early LeRobot downloaded file by
/// file, which may be of several revisions.
bool is_local_dataset(const std::filesystem::path& root);

}  // namespace lerobot::dataset
