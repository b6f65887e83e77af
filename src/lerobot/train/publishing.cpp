#include "lerobot/train/publishing.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/dcp_convert.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/upload.h"
#include "lerobot/train/model_card.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

hub::Repo repo_of(const config::TrainConfig& config) {
  return hub::make_repo(hub::RepoType::kModel, config.policy->repo_id.value());
}

/// The role of the token, "read" or "write" or what newer ones say; empty when it isn't told.
std::string role_of(const Json& account) {
  const Json& auth = account.value("auth", Json::object());
  const Json token = auth.is_object() ? auth.value("accessToken", Json::object()) : Json::object();
  const Json role = token.is_object() ? token.value("role", Json()) : Json();
  return role.is_string() ? role.get<std::string>() : "";
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
  const bool at_the_end = config.policy->push_to_hub;
  if (!at_the_end && !config.save_checkpoint_to_hub) return;
  const char* const option = at_the_end ? "policy.push_to_hub" : "save_checkpoint_to_hub";
  const hub::HubEnvironment environment = hub::HubEnvironment::read();
  if (environment.offline)
    fail("--{}=true: offline mode is on (HF_HUB_OFFLINE); unset it, or pass --{}=false", option,
         option);
  if (!environment.credentials.token)
    fail("--{}=true: {}; or pass --{}=false", option, environment.credentials.describe(), option);
  hub::HubClient client(environment);
  try {
    const Json account = client.call_json({.url = environment.endpoint + "/api/whoami-v2"},
                                          {.repo = repo_of(config), .action = "publish"});
    if (role_of(account) == "read")
      fail("--{}=true: the token from {} may only read; use one with write permission", option,
           environment.credentials.origin);
  } catch (const hub::HubError& error) {
    if (error.fault() != hub::HubFault::kUnreachable) throw;
    log::warning("The Hub can't be reached now; publishing is tried when the time comes: {}",
                 error.what());
  }
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

void CheckpointUploads::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
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
  hub::create_tag(client_, repo, name, result.commit);
  log::info("Checkpoint {} pushed to {}", name, hub::page_url(client_.endpoint(), repo));
}

void CheckpointUploads::finish() {
  const int before = InterruptGuard::received();  // of a run that ends in order already
  std::unique_lock lock(mutex_);
  bool again = true;
  while (true) {
    while (busy_ || !waiting_.empty()) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (before != 0) continue;
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
      "{} checkpoint(s) could not be published: {}. They are complete in {}; publish them with "
      "`hf upload {} FOLDER checkpoints/STEP`",
      paths.size(), last_failure_, fmt::join(paths, ", "), repo_id_);
}

std::string publish_policy(const config::TrainConfig& config,
                           const dataset::DatasetMetadata& metadata, const fs::path& checkpoint,
                           const std::string& program) {
  const fs::path pretrained = checkpoint / config::kPretrainedModelFolder;
  try {
    hub::HubClient client(hub::HubEnvironment::read());
    return push(client, config, metadata, pretrained);
  } catch (const Interrupted&) {
    log::warning("The policy is not published. It lies in {}", pretrained.string());
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
