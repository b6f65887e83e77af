#include "lerobot/dataset/hub_dataset.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/home.h"

namespace lerobot::dataset {
namespace {

namespace fs = std::filesystem;

struct Version {
  int major = 0;
  int minor = 0;
  auto operator<=>(const Version&) const = default;
};

/// "v3.0"; nullopt for any other form.
std::optional<Version> parse_version(std::string_view text) {
  if (!text.starts_with('v')) return std::nullopt;
  text.remove_prefix(1);
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view digits) -> std::optional<int> {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || digits.front() == '-' || error != std::errc() ||
        end != digits.data() + digits.size())
      return std::nullopt;
    return value;
  };
  const auto major = number(text.substr(0, point));
  const auto minor = number(text.substr(point + 1));
  if (!major || !minor) return std::nullopt;
  return Version{*major, *minor};
}

std::string name_of(Version version) { return fmt::format("v{}.{}", version.major, version.minor); }

/// Off the network the tag is taken as it is: the cache knows which commit it was.
std::string resolve_revision(hub::HubClient& client, const hub::Repo& repo,
                             const std::string& wanted) {
  if (!parse_version(wanted)) return wanted;
  try {
    return choose_version(hub::list_refs(client, repo), repo.id, wanted);
  } catch (const hub::HubError& error) {
    const bool off =
        error.fault() == hub::HubFault::kOffline || error.fault() == hub::HubFault::kUnreachable;
    if (!off) throw;
    return wanted;
  }
}

/// A path in the dataset as the repository has it.
std::string in_repository(const HubDataset& dataset, std::string_view path) {
  return dataset.folder.empty() ? std::string(path) : fmt::format("{}/{}", dataset.folder, path);
}

}  // namespace

std::string choose_version(const hub::Refs& refs, const std::string& repo_id,
                           const std::string& wanted) {
  const auto target = parse_version(wanted);
  check_internal(target.has_value(), "a revision that is no version");
  std::set<Version> versions;
  for (const auto* list : {&refs.branches, &refs.tags})
    for (const hub::Ref& ref : *list)
      if (const auto version = parse_version(ref.name)) versions.insert(*version);
  if (versions.empty())
    fail(
        "dataset {}: it has no version tag such as {}, so it can't be told which format it has; "
        "tag it, or pass main as revision",
        repo_id, wanted);
  if (versions.contains(*target)) return name_of(*target);
  std::optional<Version> best;
  for (const Version version : versions)
    if (version.major == target->major && version < *target) best = version;
  if (best) {
    log::warning("dataset {}: there is no {}, using {}", repo_id, wanted, name_of(*best));
    return name_of(*best);
  }
  const Version newest = *versions.rbegin();
  if (newest < *target)
    fail(
        "dataset {}: its newest version is {}, and {} is needed; convert it with LeRobot's "
        "lerobot.scripts.convert_dataset_v21_to_v30",
        repo_id, name_of(newest), wanted);
  fail(
      "dataset {}: it exists from version {} on only, and {} is needed; a newer lerobot.cpp may "
      "read it",
      repo_id, name_of(*versions.upper_bound(*target)), wanted);
}

HubDataset fetch_metadata(hub::HubClient& client, const HubDatasetAddress& address) {
  HubDataset dataset{.repo = hub::make_repo(hub::RepoType::kDataset, address.repo_id),
                     .pinned = {},
                     .folder = address.folder,
                     .root = {}};
  if (address.pinned)
    dataset.pinned = *address.pinned;
  else
    dataset.pinned.revision =
        resolve_revision(client, dataset.repo, address.revision.value_or(kDatasetVersion));
  const std::string& asked = address.pinned ? dataset.pinned.commit : dataset.pinned.revision;
  const std::string meta = in_repository(dataset, "meta/");
  hub::SnapshotOptions options;
  options.wanted = [&meta](std::string_view path) { return path.starts_with(meta); };
  options.progress = hub::log_download(fmt::format("the metadata of {}", address.repo_id));
  const hub::Snapshot snapshot =
      hub::download_snapshot(client, dataset.repo, asked, hub::lerobot_home() / "hub", options);
  dataset.pinned.commit = snapshot.commit;
  dataset.root = snapshot.folder / dataset.folder;
  log::info("Dataset {} at {}: commit {}", address.repo_id, dataset.pinned.revision,
            snapshot.commit);
  if (!fs::exists(dataset.root / "meta" / "info.json"))
    fail(
        "dataset {} at {}: it has no {}info.json, so it is not a LeRobotDataset; check "
        "--dataset.repo_id and --dataset.revision",
        address.repo_id, dataset.pinned.revision, meta);
  return dataset;
}

std::set<std::string, std::less<>> files_of_episodes(const DatasetFiles& files,
                                                     std::span<const std::int64_t> episodes) {
  std::set<std::string, std::less<>> paths;
  for (const std::int64_t episode : episodes) {
    paths.insert(files.data_path(episode));
    for (std::size_t camera = 0; camera < files.video_keys().size(); ++camera)
      paths.insert(files.video_path(episode, camera));
  }
  return paths;
}

void fetch_episodes(hub::HubClient& client, const HubDataset& dataset, const DatasetFiles& files,
                    std::span<const std::int64_t> episodes, const std::function<void()>& waiting) {
  std::set<std::string, std::less<>> needed;
  for (const std::string& path : files_of_episodes(files, episodes))
    needed.insert(in_repository(dataset, path));
  hub::SnapshotOptions options;
  options.wanted = [&needed](std::string_view path) { return needed.contains(path); };
  options.progress = [report = hub::log_download(dataset.repo.id),
                      waiting](const hub::TransferProgress& progress) {
    if (waiting) waiting();
    report(progress);
  };
  const hub::Snapshot snapshot = hub::download_snapshot(client, dataset.repo, dataset.pinned.commit,
                                                        hub::lerobot_home() / "hub", options);
  for (const std::string& path : needed)
    if (!fs::exists(snapshot.folder / path))
      fail(
          "dataset {} at {}: {} is not in the repository, though its metadata names it; the "
          "dataset is not complete",
          dataset.repo.id, dataset.pinned.commit, path);
}

bool is_local_dataset(const fs::path& root) {
  return fs::exists(root / "meta" / "info.json") &&
         !fs::exists(root / ".cache" / "huggingface" / "download");
}

}  // namespace lerobot::dataset
