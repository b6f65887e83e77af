#include "lerobot/train/hub_files.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/file_lock.h"
#include "lerobot/base/files.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/json.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo_info.h"
#include "lerobot/hub/snapshot.h"

namespace lerobot::train {
namespace {

constexpr const char* kStopping = "\nStopping the download. Once more to stop at once.\n";

/// Downloads of one repository of models.
class ModelRepo {
 public:
  explicit ModelRepo(const std::string& id)
      : client_(hub::HubEnvironment::read()), repo_(hub::make_repo(hub::RepoType::kModel, id)) {}

  hub::Snapshot download(const std::string& revision, const std::string& folder,
                         std::function<bool(std::string_view)> wanted) {
    hub::SnapshotOptions options;
    options.folder = folder;
    options.wanted = std::move(wanted);
    options.progress = [report = hub::log_download(repo_.id)](const hub::TransferProgress& now) {
      throw_when_interrupted();
      report(now);
    };
    return hub::download_snapshot(client_, repo_, revision, client_.environment().cache, options);
  }

  /// checkpoints/NUMBER with the highest number at `commit`; nullopt when there is none.
  std::optional<std::string> latest_checkpoint(const std::string& commit) {
    std::optional<std::pair<std::int64_t, std::string>> best;
    const std::string folder = config::kCheckpointsFolder;
    std::vector<hub::RepoFile> files;
    try {
      files = hub::list_files(client_, repo_, commit, folder);
    } catch (const hub::HubError& error) {
      if (error.fault() != hub::HubFault::kEntryNotFound) throw;
    }
    for (const hub::RepoFile& file : files) {
      std::string_view rest = file.path;
      if (!rest.starts_with(folder + "/")) continue;
      rest.remove_prefix(folder.size() + 1);
      const std::string name(rest.substr(0, rest.find('/')));
      std::int64_t step = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
      if (error != std::errc() || end != name.data() + name.size()) continue;
      if (!best || step > best->first) best = {step, name};
    }
    if (!best) return std::nullopt;
    return folder + "/" + best->second;
  }

  std::string resolve(const std::string& revision) {
    return hub::resolve_commit(client_, repo_, revision);
  }

 private:
  hub::HubClient client_;
  const hub::Repo repo_;
};

bool is_at_the_root(std::string_view path) { return path.find('/') == std::string_view::npos; }

fs::path fetch_train_config(const std::string& repo_id) {
  const InterruptGuard interrupts(kStopping);
  ModelRepo repo(repo_id);
  const auto is_config = [](std::string_view path) { return path == config::kTrainConfigFile; };
  const hub::Snapshot snapshot = repo.download("main", "", is_config);
  fs::path file = snapshot.folder / config::kTrainConfigFile;
  if (fs::exists(file)) return file;
  // A repository of checkpoints of a run that didn't end.
  const auto latest = repo.latest_checkpoint(snapshot.commit);
  if (!latest)
    fail("{}: there is neither a {} nor a checkpoint in this repository of the Hub", repo_id,
         config::kTrainConfigFile);
  const std::string path =
      fmt::format("{}/{}/{}", *latest, config::kPretrainedModelFolder, config::kTrainConfigFile);
  repo.download(snapshot.commit, *latest, [&path](std::string_view name) { return name == path; });
  file = snapshot.folder / path;
  if (!fs::exists(file)) fail("{}: {} is missing in this repository of the Hub", repo_id, path);
  return file;
}

/// Whether `to` holds every file of `from` as it is.
bool holds(const fs::path& to, const fs::path& from) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(from, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_directory()) continue;
    const fs::path copy = to / entry->path().lexically_relative(from);
    std::error_code absent;
    const auto size = fs::file_size(copy, absent);
    if (absent || size != fs::file_size(entry->path())) return false;
    if (size == 0) continue;
    const MappedFile one(copy), other(fs::canonical(entry->path()));
    if (!std::ranges::equal(one.bytes(), other.bytes())) return false;
  }
  return !error;
}

/// A folder where another run, or a later part of this one, has been is no place for it.
void check_run_folder(const fs::path& checkpoints, const std::string& step,
                      const std::string& repo_id) {
  const auto steps = config::step_folders(checkpoints);
  const auto number = config::parse_step_folder_name(step);
  const auto last = steps.empty()
                        ? std::nullopt
                        : config::parse_step_folder_name(steps.front().filename().string());
  if (!last || !number || *last <= *number) return;
  fail(
      "{} holds checkpoints later than {}, the last one of {} on the Hub: go on from them with "
      "--config_path='{}', or choose another --output_dir",
      checkpoints.string(), step, repo_id, steps.front().string());
}

/// A copy that appears as a whole. Ranks of one machine make one.
void place_checkpoint(const fs::path& from, const fs::path& to) {
  make_directories(to.parent_path());
  const auto lock = FileLock::acquire(to.parent_path() / ".download.lock", std::chrono::hours(24),
                                      throw_when_interrupted);
  if (!lock) fail("{}: another process downloads a checkpoint there", to.parent_path().string());
  if (fs::exists(to)) {
    if (!holds(to, from))
      fail(
          "{} is there and is not the checkpoint on the Hub: another run's, or damaged; choose "
          "another --output_dir, or remove it",
          to.string());
    log::info("{} is on this machine already", to.string());
    return;
  }
  std::random_device random;
  const fs::path temporary =
      to.parent_path() / fmt::format(".{}.{:08x}.tmp", to.filename().string(), random());
  std::error_code error;
  fs::create_directory(temporary);
  for (fs::recursive_directory_iterator entry(from, error), end; !error && entry != end;
       entry.increment(error)) {
    throw_when_interrupted();
    const fs::path target = temporary / entry->path().lexically_relative(from);
    if (entry->is_directory())
      fs::create_directories(target, error);
    else
      fs::copy_file(fs::canonical(entry->path()), target, error);
    if (error) break;
  }
  if (!error) fs::rename(temporary, to, error);
  if (!error) return;
  const int number = error.value();
  fs::remove_all(temporary, error);
  fail_system(number, "{}: the checkpoint can't be copied there", to.string());
}

fs::path fetch_checkpoint(const std::string& repo_id,
                          const std::optional<std::string>& output_dir) {
  const InterruptGuard interrupts(kStopping);
  ModelRepo repo(repo_id);
  const std::string commit = repo.resolve("main");
  const auto latest = repo.latest_checkpoint(commit);
  if (!latest)
    fail(
        "{}: there is no checkpoint in this repository of the Hub (checkpoints/STEP/), so there "
        "is nothing to resume; --save_checkpoint_to_hub=true publishes them",
        repo_id);
  log::info("Resuming from {} of {} on the Hub", *latest, repo_id);
  const hub::Snapshot snapshot = repo.download(
      commit, *latest, [&](std::string_view path) { return path.starts_with(*latest + "/"); });
  const fs::path downloaded = snapshot.folder / *latest;
  const fs::path config_file = fs::path(config::kPretrainedModelFolder) / config::kTrainConfigFile;
  if (!fs::exists(downloaded / config_file))
    fail("{}: {} of this repository of the Hub has no {}", repo_id, *latest, config_file.string());

  std::string run = output_dir.value_or("");
  if (run.empty()) {
    const Json config = read_json_file(downloaded / config_file);
    if (config.is_object() && config.contains("output_dir") && config["output_dir"].is_string())
      run = config["output_dir"].get<std::string>();
  }
  if (run.empty())
    fail("{}: the checkpoint records no output_dir; pass --output_dir=FOLDER", repo_id);
  const fs::path checkpoints = fs::path(run) / config::kCheckpointsFolder;
  const std::string step = downloaded.filename().string();
  check_run_folder(checkpoints, step, repo_id);
  place_checkpoint(downloaded, checkpoints / step);
  checkpoint::point_last_at(checkpoints, step);
  return checkpoints / step / config_file;
}

}  // namespace

PretrainedPolicy fetch_policy(const std::string& path, const std::optional<std::string>& revision) {
  if (!config::may_be_on_hub(path)) return {config::find_pretrained(path), std::nullopt};
  const InterruptGuard interrupts(kStopping);
  const hub::Snapshot snapshot =
      ModelRepo(path).download(revision.value_or("main"), "", is_at_the_root);
  if (!fs::exists(snapshot.folder / config::kPolicyConfigFile))
    fail("{}: there is no {} in this repository of the Hub, so it holds no policy", path,
         config::kPolicyConfigFile);
  return {snapshot.folder, snapshot.commit};
}

config::HubFiles hub_files() {
  return {.policy =
              [](const std::string& repo_id, const std::optional<std::string>& revision) {
                return fetch_policy(repo_id, revision).folder;
              },
          .train_config = fetch_train_config,
          .checkpoint = fetch_checkpoint};
}

}  // namespace lerobot::train
