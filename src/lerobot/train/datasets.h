// The datasets of a configuration: where they lie, which episodes train, which are held out.
#pragma once

#include <memory>
#include <optional>

#include "lerobot/config/train_config.h"
#include "lerobot/dataset/batch_sharding.h"
#include "lerobot/dataset/map_dataset.h"
#include "lerobot/dataset/map_loader.h"
#include "lerobot/dataset/sampler.h"
#include "lerobot/streaming/dataset_place.h"
#include "lerobot/train/stream.h"

namespace lerobot::train {

struct Datasets {
  std::shared_ptr<dataset::DatasetMetadata> metadata;
  /// Null when the dataset is streamed.
  std::shared_ptr<const dataset::MapDataset> train;
  /// Null without --dataset.eval_split.
  std::shared_ptr<const dataset::MapDataset> held_out;
  /// Empty unless the dataset is streamed.
  std::optional<StreamRun> stream;

  /// What is trained on.
  std::int64_t frames() const;
  std::int64_t episodes() const;
};

/// Where the dataset is: --dataset.root, the Bucket, $HF_LEROBOT_HOME/<repo_id> (default
/// ~/.cache/huggingface/lerobot), the repository on the Hub; its revision pinned to a commit, or to
/// `pinned`, which rank 0 has found. Throws Error that says where it was looked for.
std::shared_ptr<streaming::DatasetPlace> open_place(
    const config::TrainConfig& config, const std::optional<dataset::PinnedRevision>& pinned = {});

/// Reads the metadata; camera statistics are ImageNet's under --dataset.use_imagenet_stats.
std::shared_ptr<dataset::DatasetMetadata> open_metadata(const config::TrainConfig& config,
                                                        streaming::DatasetPlace& place);

/// Opens the selected episodes with the policy's windows, for a run of `world` processes: as a
/// stream, or in memory, which downloads their files first. Throws as dataset/ and streaming/ do.
Datasets open_datasets(const config::TrainConfig& config, streaming::DatasetPlace& place,
                       std::shared_ptr<dataset::DatasetMetadata> metadata, std::int64_t world);

/// Training order: LeRobot's, frames of short episodes' ends left out as the policy asks.
dataset::EpisodeAwareSampler make_sampler(const config::TrainConfig& config,
                                          const Datasets& datasets);

/// What --batch_size, --num_workers and the like say about a loader of a dataset in memory.
dataset::MapLoaderOptions map_loader_options(const config::TrainConfig& config, bool pin_memory);

/// Where a training loader begins.
struct LoaderStart {
  std::int64_t step = 0;           ///< of the loop; what a stream begins with
  dataset::EpochPosition samples;  ///< what a dataset in memory begins with
  bool even_batches = false;       ///< MapLoaderOptions::even_batches
};

/// A process's training loader, of the dataset in memory or of the stream.
std::unique_ptr<dataset::BatchSource> make_train_loader(const config::TrainConfig& config,
                                                        const Datasets& datasets, DataShare share,
                                                        const LoaderStart& start, bool pin_memory);

}  // namespace lerobot::train
