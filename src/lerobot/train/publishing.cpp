#include "lerobot/train/publishing.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/dcp_convert.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/hub/account.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/repo_info.h"
#include "lerobot/hub/upload.h"
#include "lerobot/hub/url.h"
#include "lerobot/train/model_card.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

hub::Repo repo_of(const config::TrainConfig& config) {
  return hub::make_repo(hub::RepoType::kModel, config.policy->repo_id.value());
}

void ensure_weights(const fs::path& pretrained) {
  if (fs::exists(pretrained / checkpoint::kModelFile) ||
      fs::exists(pretrained / checkpoint::kAdapterModelFile))
    return;
  log::info("Merging the shards of {} for publishing", pretrained.string());
  checkpoint::convert_dcp(pretrained, {.progress = [](const auto&) { throw_when_interrupted(); }});
}

/// What a repository of a policy holds: no shards.
bool is_published(const std::string& path) {
  return path.find('/') == std::string::npos &&
         (path.ends_with(".json") || path.ends_with(".safetensors") || path.ends_with(".md"));
}

/// Names of the folders in checkpoints/; empty when there is no repository yet, or the Hub can't be
/// reached.
std::set<std::string> published_steps(hub::HubClient& client, const hub::Repo& repo) {
  std::set<std::string> steps;
  try {
    const std::string folder = std::string(config::kCheckpointsFolder) + "/";
    const std::string commit = hub::resolve_commit(client, repo, "main");
    for (const hub::RepoFile& file :
         hub::list_files(client, repo, commit, config::kCheckpointsFolder))
      if (file.path.starts_with(folder))
        steps.insert(
            file.path.substr(folder.size(), file.path.find('/', folder.size()) - folder.size()));
  } catch (const hub::HubError& error) {
    const bool none = error.fault() == hub::HubFault::kRepoNotFound ||
                      error.fault() == hub::HubFault::kUnauthorized ||
                      error.fault() == hub::HubFault::kRevisionNotFound ||
                      error.fault() == hub::HubFault::kEntryNotFound ||
                      error.fault() == hub::HubFault::kUnreachable;
    if (!none) throw;
  }
  return steps;
}

/// A tag of an earlier upload of the same step moves.
void put_tag(hub::HubClient& client, const hub::Repo& repo, const std::string& name,
             const std::string& commit) {
  for (const hub::Ref& tag : hub::list_refs(client, repo).tags) {
    if (tag.name != name) continue;
    if (tag.commit == commit) return;
    client.call({.method = "DELETE",
                 .url = fmt::format("{}/tag/{}", hub::api_url(client.endpoint(), repo),
                                    hub::percent_encode(name))},
                {.repo = repo, .action = fmt::format("move the tag {}", name)});
  }
  hub::create_tag(client, repo, name, commit);
}

/// What a user types to try again.
std::string resume_command(const std::string& program, const fs::path& checkpoint) {
  return fmt::format(
      "{} --resume=true --config_path='{}'", program,
      (checkpoint / config::kPretrainedModelFolder / config::kTrainConfigFile).string());
}

std::string push(hub::HubClient& client, const config::TrainConfig& config,
                 const dataset::DatasetMetadata& metadata, const fs::path& pretrained) {
  ensure_weights(pretrained);
  const hub::Repo repo = repo_of(config);
  const std::string page = hub::create_repo(client, repo, config.policy->private_);
  auto files = hub::folder_files(pretrained, "", is_published);
  std::erase_if(files, [](const hub::UploadFile& file) { return file.path == "README.md"; });
  files.push_back({"README.md", model_card(config, metadata)});
  const auto report = hub::log_upload(repo.id);
  hub::upload_commit(
      client, repo,
      {.message = "Upload policy weights, train config and readme", .files = std::move(files)},
      {.progress = [&](const hub::TransferProgress& progress) {
        throw_when_interrupted();
        report(progress);
      }});
  return page;
}

}  // namespace

void check_publishing(const config::TrainConfig& config) {
  if (!config.policy->push_to_hub && !config.save_checkpoint_to_hub) return;
  hub::HubClient client(hub::HubEnvironment::read());
  const hub::Repo repo = repo_of(config);
  hub::check_may_publish(client, repo, config.policy->private_);
  if (!config.save_checkpoint_to_hub || config.resume) return;
  if (const auto steps = published_steps(client, repo); !steps.empty())
    fail(
        "--save_checkpoint_to_hub=true: {} holds checkpoints of another run already (the last is "
        "{}), and a resume would mix the two: choose another --policy.repo_id, or delete its "
        "folder {}",
        describe(repo), *steps.rbegin(), config::kCheckpointsFolder);
}

CheckpointUploads::CheckpointUploads(const config::TrainConfig& config)
    : repo_id_(config.policy->repo_id.value()),
      private_(config.policy->private_),
      client_(hub::HubEnvironment::read(), {.stops_when_interrupted = false}),
      thread_([this] { run(); }) {}

CheckpointUploads::~CheckpointUploads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting_.clear();
  }
  client_.cancel();
  changed_.notify_all();
  thread_.join();
}

void CheckpointUploads::add(const fs::path& checkpoint) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(checkpoint);
  }
  changed_.notify_all();
}

void CheckpointUploads::add_unpublished(const fs::path& checkpoints) {
  {
    const std::lock_guard lock(mutex_);
    unlisted_ = checkpoints;
  }
  changed_.notify_all();
}

std::size_t CheckpointUploads::unpublished() {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + failed_.size() + (busy_ ? 1 : 0);
}

/// Those of a resumed run that the repository doesn't have, the first step first.
void CheckpointUploads::look_for_unpublished(const fs::path& checkpoints) {
  const auto there = published_steps(client_, hub::make_repo(hub::RepoType::kModel, repo_id_));
  std::vector<fs::path> missing;
  for (const fs::path& folder : config::step_folders(checkpoints))
    if (!there.contains(folder.filename().string()) && !checkpoint::missing_part(folder))
      missing.push_back(folder);
  const std::lock_guard lock(mutex_);
  for (const fs::path& folder : missing)
    if (std::find(waiting_.begin(), waiting_.end(), folder) == waiting_.end())
      waiting_.push_front(folder);
}

void CheckpointUploads::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || unlisted_ || !waiting_.empty(); });
    if (stopping_) return;
    if (unlisted_) {
      const fs::path checkpoints = *std::exchange(unlisted_, std::nullopt);
      busy_ = true;
      lock.unlock();
      try {
        look_for_unpublished(checkpoints);
      } catch (const std::exception& error) {
        log::warning("It can't be told which checkpoints are published: {}", error.what());
      }
      lock.lock();
      busy_ = false;
      changed_.notify_all();
      continue;
    }
    const fs::path checkpoint = waiting_.front();
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    std::string failure;
    try {
      upload(checkpoint);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    lock.lock();
    busy_ = false;
    if (!failure.empty()) {
      failed_.push_back(checkpoint);
      last_failure_ = failure;
      if (!stopping_)
        log::warning("Checkpoint {} is not published yet: {}", checkpoint.filename().string(),
                     failure);
    }
    changed_.notify_all();
  }
}

void CheckpointUploads::upload(const fs::path& checkpoint) {
  const hub::Repo repo = hub::make_repo(hub::RepoType::kModel, repo_id_);
  const std::string name = checkpoint.filename().string();
  if (!repo_is_there_) hub::create_repo(client_, repo, private_);
  repo_is_there_ = true;
  const hub::CommitResult result =
      hub::upload_commit(client_, repo,
                         {.message = "checkpoint " + name,
                          .files = hub::folder_files(
                              checkpoint, fmt::format("{}/{}", config::kCheckpointsFolder, name))},
                         {.progress = hub::log_upload(fmt::format("checkpoint {}", name))});
  put_tag(client_, repo, name, result.commit);
  log::info("Checkpoint {} pushed to {}", name, hub::page_url(client_.endpoint(), repo));
}

void CheckpointUploads::finish(const std::string& program) {
  std::unique_lock lock(mutex_);
  bool again = true;
  while (true) {
    while (busy_ || unlisted_ || !waiting_.empty()) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      lock.unlock();
      throw_when_interrupted();
      lock.lock();
    }
    if (failed_.empty()) return;
    if (!std::exchange(again, false)) break;
    waiting_.assign(failed_.begin(), failed_.end());
    failed_.clear();
    changed_.notify_all();
  }
  std::vector<std::string> paths;
  for (const fs::path& path : failed_) paths.push_back(path.string());
  fail(
      "{} checkpoint(s) could not be published: {}. They are complete in {}; publish them with: {}",
      paths.size(), last_failure_, fmt::join(paths, ", "), resume_command(program, failed_.back()));
}

std::string publish_policy(const config::TrainConfig& config,
                           const dataset::DatasetMetadata& metadata, const fs::path& checkpoint,
                           const std::string& program) {
  const fs::path pretrained = checkpoint / config::kPretrainedModelFolder;
  try {
    hub::HubClient client(hub::HubEnvironment::read());
    return push(client, config, metadata, pretrained);
  } catch (const Interrupted&) {
    log::warning("The policy is not published. It lies in {}; publish it with: {}",
                 pretrained.string(), resume_command(program, checkpoint));
    throw;
  } catch (const Error& error) {
    fail(
        "the trained policy could not be published: {}. It is complete in {}; publish it with: {} "
        "--resume=true --config_path='{}'",
        error.what(), pretrained.string(), program,
        (pretrained / config::kTrainConfigFile).string());
  }
}

}  // namespace lerobot::train
