// What of a run goes to the Hub: the trained policy at the end, and checkpoints as they are
// written.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lerobot/config/train_config.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/hub/hub_client.h"

namespace lerobot::train {

/// For rank 0, before hours of training: throws Error when what the configuration publishes can't
/// be, as far as it can be told now (hub::check_may_publish()), and when a new run's checkpoints
/// would come among those of another one.
void check_publishing(const config::TrainConfig& config);

/// Uploads checkpoints, one after the other, while training goes on. A failed one is tried again at
/// the end.
class CheckpointUploads {
 public:
  explicit CheckpointUploads(const config::TrainConfig& config);
  CheckpointUploads(const CheckpointUploads&) = delete;
  CheckpointUploads& operator=(const CheckpointUploads&) = delete;
  /// Breaks off what is under way.
  ~CheckpointUploads();

  /// A complete checkpoint, as checkpoints/STEP of policy.repo_id, with the tag STEP. From any
  /// thread.
  void add(const std::filesystem::path& checkpoint);
  /// Those below `checkpoints` (<output_dir>/checkpoints) that the repository doesn't have: what an
  /// earlier part of a resumed run couldn't publish.
  void add_unpublished(const std::filesystem::path& checkpoints);
  /// How many are not published yet.
  std::size_t unpublished();
  /// Waits until all are there. Throws Error that names those that aren't and says how they can be
  /// published; Interrupted on Ctrl-C.
  void finish(const std::string& program);

 private:
  void run();
  void upload(const std::filesystem::path& checkpoint);
  void look_for_unpublished(const std::filesystem::path& checkpoints);

  const std::string repo_id_;
  const std::optional<bool> private_;
  hub::HubClient client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::filesystem::path> unlisted_;  ///< to be looked through
  std::deque<std::filesystem::path> waiting_;
  std::vector<std::filesystem::path> failed_;
  std::string last_failure_;
  bool busy_ = false;
  bool stopping_ = false;
  bool repo_is_there_ = false;  // the thread's own
  std::thread thread_;
};

/// Publishes the policy of a checkpoint, with its processors, train_config.json and a model card,
/// in one commit. Weights that lie in shards are merged first. Returns the page. Throws Error that
/// says where the policy lies and the command that publishes it; nothing on this machine is lost.
std::string publish_policy(const config::TrainConfig& config,
                           const dataset::DatasetMetadata& metadata,
                           const std::filesystem::path& checkpoint, const std::string& program);

}  // namespace lerobot::train
