#include "lerobot/dataset/metadata.h"

#include "lerobot/base/error.h"
#include "lerobot/dataset/stats.h"

namespace lerobot::dataset {
namespace {

/// A dataset whose version says 3.0 while its files are those of 2.1.
void check_not_half_converted(const std::filesystem::path& meta, std::string_view version) {
  namespace fs = std::filesystem;
  if (fs::exists(meta / "episodes") || !fs::exists(meta / "episodes.jsonl")) return;
  fail(
      "{}: info.json says version {}, but the files are those of v2.1 (episodes.jsonl is there, "
      "episodes/ is not); v3.0 is needed: convert the dataset with LeRobot's "
      "lerobot.scripts.convert_dataset_v21_to_v30",
      meta.string(), version);
}

}  // namespace

std::shared_ptr<DatasetMetadata> DatasetMetadata::open(const std::filesystem::path& root,
                                                       const std::string& repo_id,
                                                       std::string_view depth_output_unit) {
  if (depth_output_unit != "m" && depth_output_unit != "mm")
    fail("dataset.depth_output_unit: must be \"m\" or \"mm\", found \"{}\"", depth_output_unit);
  if (!std::filesystem::is_directory(root))
    fail("dataset {}: {} is not a directory; check --dataset.root", repo_id, root.string());
  const auto meta = root / "meta";
  if (!std::filesystem::exists(meta / "info.json"))
    fail("dataset {}: {} is missing, so this is not a LeRobotDataset; check --dataset.root",
         repo_id, (meta / "info.json").string());

  auto metadata = std::make_shared<DatasetMetadata>();
  metadata->root_ = root;
  metadata->repo_id_ = repo_id;
  metadata->depth_output_unit_ = std::string(depth_output_unit);
  metadata->info_ = read_dataset_info(meta / "info.json");
  metadata->video_keys_ = metadata->info_.video_keys();
  check_not_half_converted(meta, metadata->info_.codebase_version);
  if (!std::filesystem::is_directory(meta / "episodes"))
    fail("{}: is missing; fetch the dataset's files again", (meta / "episodes").string());
  metadata->tasks_ = TaskTable::read(meta / "tasks.parquet");
  metadata->episodes_ = EpisodeTable::read(meta / "episodes", metadata->info_);
  metadata->stats_ = read_stats(meta / "stats.json", metadata->info_, depth_output_unit);
  return metadata;
}

config::FeatureMap DatasetMetadata::policy_features() const {
  using config::FeatureType;
  config::FeatureMap features;
  for (const Feature& feature : info_.features) {
    if (feature.is_camera())
      features.emplace_back(feature.name,
                            config::PolicyFeature{FeatureType::kVisual, feature.sample_shape()});
    else if (feature.name == "observation.environment_state")
      features.emplace_back(feature.name, config::PolicyFeature{FeatureType::kEnv, feature.shape});
    else if (feature.name.starts_with("observation"))
      features.emplace_back(feature.name,
                            config::PolicyFeature{FeatureType::kState, feature.shape});
    else if (feature.name.starts_with("action"))
      features.emplace_back(feature.name,
                            config::PolicyFeature{FeatureType::kAction, feature.shape});
  }
  return features;
}

std::string DatasetMetadata::data_path(std::int64_t episode) const {
  const FileIndex file = episodes_.data_file(episode);
  return info_.data_path.expand(file.chunk, file.file);
}

std::string DatasetMetadata::video_path(std::int64_t episode, std::size_t camera) const {
  const FileIndex file = episodes_.video(episode, camera).file;
  return info_.video_path->expand(file.chunk, file.file, video_keys_[camera]);
}

std::filesystem::path DatasetMetadata::data_file(std::int64_t episode) const {
  return root_ / data_path(episode);
}

std::filesystem::path DatasetMetadata::video_file(std::int64_t episode, std::size_t camera) const {
  return root_ / video_path(episode, camera);
}

}  // namespace lerobot::dataset
