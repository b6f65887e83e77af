// Everything that the meta/ folder of a LeRobotDataset v3.0 says.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/dataset/dataset_info.h"
#include "lerobot/dataset/episodes.h"
#include "lerobot/dataset/tasks.h"

namespace lerobot::dataset {

/// Immutable after open() but for the statistics that set_stats() replaces. Thread-safe to read.
class DatasetMetadata {
 public:
  /// Reads meta/info.json, tasks.parquet, episodes/ and stats.json under `root`.
  /// `depth_output_unit` is "m" or "mm" (--dataset.depth_output_unit): depth statistics come in it.
  /// Throws Error as the parts do; the version of the dataset is checked before anything else.
  static std::shared_ptr<DatasetMetadata> open(const std::filesystem::path& root,
                                               const std::string& repo_id,
                                               std::string_view depth_output_unit = "mm");

  const std::filesystem::path& root() const { return root_; }
  const std::string& repo_id() const { return repo_id_; }
  const DatasetInfo& info() const { return info_; }
  const TaskTable& tasks() const { return tasks_; }
  const EpisodeTable& episodes() const { return episodes_; }
  const std::string& depth_output_unit() const { return depth_output_unit_; }

  /// Of the whole dataset, whatever episodes are selected. Empty without a stats.json.
  const DatasetStats& stats() const { return stats_; }
  void set_stats(DatasetStats stats) { stats_ = std::move(stats); }

  /// The features that a policy may use, in order: cameras as VISUAL with (C,H,W),
  /// observation.environment_state as ENV, other observation* as STATE, action* as ACTION.
  config::FeatureMap policy_features() const;

  /// Names of the video features, in order: what `camera` counts in the video functions.
  const std::vector<std::string>& video_keys() const { return video_keys_; }
  /// Where an episode's rows and frames are, relative to the dataset's root, with '/'.
  std::string data_path(std::int64_t episode) const;
  std::string video_path(std::int64_t episode, std::size_t camera) const;
  /// The same under root().
  std::filesystem::path data_file(std::int64_t episode) const;
  std::filesystem::path video_file(std::int64_t episode, std::size_t camera) const;

 private:
  std::filesystem::path root_;
  std::string repo_id_;
  std::string depth_output_unit_;
  DatasetInfo info_;
  std::vector<std::string> video_keys_;
  TaskTable tasks_;
  EpisodeTable episodes_;
  DatasetStats stats_;
};

}  // namespace lerobot::dataset
