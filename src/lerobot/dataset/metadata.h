// Everything that the meta/ folder of a LeRobotDataset v3.0 says.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/dataset/dataset_files.h"
#include "lerobot/dataset/tasks.h"

namespace lerobot::dataset {

/// Immutable after open() but for the statistics that set_stats() replaces. Thread-safe to read.
class DatasetMetadata : public DatasetFiles {
 public:
  explicit DatasetMetadata(DatasetFiles files) : DatasetFiles(std::move(files)) {}
  /// Reads meta/info.json, tasks.parquet, episodes/ and stats.json under `root`.
  /// `depth_output_unit` is "m" or "mm" (--dataset.depth_output_unit): depth statistics come in it.
  /// Throws Error as the parts do; the version of the dataset is checked before anything else.
  static std::shared_ptr<DatasetMetadata> open(const std::filesystem::path& root,
                                               const std::string& repo_id,
                                               std::string_view depth_output_unit = "mm");

  const TaskTable& tasks() const { return tasks_; }
  const std::string& depth_output_unit() const { return depth_output_unit_; }

  /// Of the whole dataset, whatever episodes are selected. Empty without a stats.json.
  const DatasetStats& stats() const { return stats_; }
  void set_stats(DatasetStats stats) { stats_ = std::move(stats); }

  /// The features that a policy may use, in order: cameras as VISUAL with (C,H,W),
  /// observation.environment_state as ENV, other observation* as STATE, action* as ACTION.
  config::FeatureMap policy_features() const;

 private:
  std::string depth_output_unit_;
  TaskTable tasks_;
  DatasetStats stats_;
};

}  // namespace lerobot::dataset
