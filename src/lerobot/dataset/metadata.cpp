#include "lerobot/dataset/metadata.h"

#include "lerobot/base/error.h"
#include "lerobot/dataset/stats.h"

namespace lerobot::dataset {

std::shared_ptr<DatasetMetadata> DatasetMetadata::open(const std::filesystem::path& root,
                                                       const std::string& repo_id,
                                                       std::string_view depth_output_unit) {
  if (depth_output_unit != "m" && depth_output_unit != "mm")
    fail("dataset.depth_output_unit: must be \"m\" or \"mm\", found \"{}\"", depth_output_unit);
  auto metadata = std::make_shared<DatasetMetadata>(DatasetFiles::open(root, repo_id));
  metadata->depth_output_unit_ = std::string(depth_output_unit);
  const auto meta = root / "meta";
  metadata->tasks_ = TaskTable::read(meta / "tasks.parquet");
  metadata->stats_ = read_stats(meta / "stats.json", metadata->info(), depth_output_unit);
  return metadata;
}

config::FeatureMap DatasetMetadata::policy_features() const {
  using config::FeatureType;
  config::FeatureMap features;
  for (const Feature& feature : info().features) {
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

}  // namespace lerobot::dataset
