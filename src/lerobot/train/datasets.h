// The datasets of a configuration: where they lie, which episodes train, which are held out.
#pragma once

#include <filesystem>
#include <memory>

#include "lerobot/config/train_config.h"
#include "lerobot/dataset/batch_sharding.h"
#include "lerobot/dataset/map_dataset.h"
#include "lerobot/dataset/map_loader.h"
#include "lerobot/dataset/sampler.h"

namespace lerobot::train {

struct Datasets {
  std::shared_ptr<dataset::DatasetMetadata> metadata;
  std::shared_ptr<const dataset::MapDataset> train;
  /// Null without --dataset.eval_split.
  std::shared_ptr<const dataset::MapDataset> held_out;
};

/// --dataset.root, else $HF_LEROBOT_HOME/<repo_id> (default ~/.cache/huggingface/lerobot). Throws
/// Error that says where it was looked for.
std::filesystem::path dataset_root(const config::DatasetConfig& config);

/// Reads the metadata; camera statistics are ImageNet's under --dataset.use_imagenet_stats.
std::shared_ptr<dataset::DatasetMetadata> open_metadata(const config::TrainConfig& config);

/// Opens the selected episodes with the policy's windows. Throws as dataset/ does.
Datasets open_datasets(const config::TrainConfig& config,
                       std::shared_ptr<dataset::DatasetMetadata> metadata);

/// Training order: LeRobot's, frames of short episodes' ends left out as the policy asks.
dataset::EpisodeAwareSampler make_sampler(const config::TrainConfig& config,
                                          const Datasets& datasets);

/// The training loader, beginning at `start`.
std::unique_ptr<dataset::MapLoader> make_train_loader(const config::TrainConfig& config,
                                                      const Datasets& datasets,
                                                      dataset::EpochPosition start,
                                                      bool pin_memory);

/// The held-out frames in order, at most max_eval_samples of them; one epoch is one evaluation.
std::unique_ptr<dataset::MapLoader> make_eval_loader(const config::TrainConfig& config,
                                                     const Datasets& datasets, bool pin_memory);

}  // namespace lerobot::train
