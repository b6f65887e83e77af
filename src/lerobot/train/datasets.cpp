#include "lerobot/train/datasets.h"

#include <utility>

#include "lerobot/base/interrupt.h"
#include "lerobot/dataset/episode_selection.h"
#include "lerobot/dataset/episodes.h"
#include "lerobot/dataset/image_transforms.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/dataset/stats.h"
#include "lerobot/hub/environment.h"
#include "lerobot/hub/home.h"

namespace lerobot::train {
namespace {

using config::TrainConfig;

constexpr const char* kStopping = "\nStopping before the first step. Once more to stop at once.\n";

}  // namespace

dataset::MapLoaderOptions map_loader_options(const TrainConfig& config, bool pin_memory) {
  dataset::MapLoaderOptions options;
  options.batch_size = config.batch_size;
  options.num_workers = config.num_workers;
  options.prefetch_factor = config.prefetch_factor;
  options.pin_memory = pin_memory;
  if (config.dataset.video_decoder_cache_size)
    options.decoder_cache_size = *config.dataset.video_decoder_cache_size;
  return options;
}

std::shared_ptr<streaming::DatasetPlace> open_place(
    const TrainConfig& config, const std::optional<dataset::PinnedRevision>& pinned) {
  const config::DatasetConfig& options = config.dataset;
  const InterruptGuard interrupts(kStopping);
  return streaming::open_place(
      {.repo_id = options.repo_id,
       .type = options.repo_type == "bucket" ? hub::RepoType::kBucket : hub::RepoType::kDataset,
       .root = options.root,
       .revision = options.revision,
       .pinned = pinned},
      {.hub = hub::HubEnvironment::read(),
       .lerobot_home = hub::lerobot_home(),
       .connections = stream_connections(config),
       .subranges = static_cast<std::size_t>(options.streaming_native_http_subranges),
       .lock_timeout = std::chrono::duration<double>(options.streaming_sidecar_lock_timeout_s),
       .waiting = throw_when_interrupted});
}

std::shared_ptr<dataset::DatasetMetadata> open_metadata(const TrainConfig& config,
                                                        streaming::DatasetPlace& place) {
  const InterruptGuard interrupts(kStopping);
  std::shared_ptr<dataset::DatasetMetadata> metadata;
  place.with_metadata([&](const std::filesystem::path& root) {
    metadata = dataset::DatasetMetadata::open(root, config.dataset.repo_id,
                                              config.dataset.depth_output_unit);
  });
  if (config.dataset.use_imagenet_stats) {
    auto stats = metadata->stats();
    dataset::use_imagenet_stats(stats, metadata->info());
    metadata->set_stats(std::move(stats));
  }
  return metadata;
}

Datasets open_datasets(const TrainConfig& config, streaming::DatasetPlace& place,
                       std::shared_ptr<dataset::DatasetMetadata> metadata, std::int64_t world) {
  const InterruptGuard interrupts(kStopping);
  if (config.dataset.streaming)
    return {.metadata = metadata,
            .train = nullptr,
            .held_out = nullptr,
            .stream = open_stream(config, place, metadata, world)};
  const auto selected = dataset::select_episodes(
      metadata->info().total_episodes, config.dataset.episodes, config.dataset.exclude_episodes);
  const auto split =
      dataset::split_episodes(metadata->episodes(), selected, config.dataset.eval_split);
  place.download(*metadata, selected);
  const auto open = [&](const std::vector<std::int64_t>& episodes) {
    return dataset::MapDataset::open(metadata, {.episodes = episodes,
                                                .windows = config.policy->delta_indices(),
                                                .tolerance_s = config.tolerance_s});
  };
  Datasets datasets{
      .metadata = metadata, .train = open(split.train), .held_out = nullptr, .stream = {}};
  if (!split.eval.empty()) datasets.held_out = open(split.eval);
  return datasets;
}

dataset::EpisodeAwareSampler make_sampler(const TrainConfig& config, const Datasets& datasets) {
  const auto& episodes = datasets.metadata->episodes();
  const auto selected = datasets.train->episodes();
  return dataset::EpisodeAwareSampler(
      episodes.all_from(), episodes.all_to(),
      {.episodes = std::vector<std::int64_t>(selected.begin(), selected.end()),
       .drop_last = config.policy->drop_last_frames(),
       .seed = static_cast<std::uint64_t>(config.seed.value_or(0)),
       .first_row = datasets.train->first_rows()});
}

std::int64_t Datasets::frames() const {
  if (!stream) return train->size();
  std::int64_t frames = 0;
  for (const std::int64_t episode : stream->source.episodes)
    frames += metadata->episodes().length(episode);
  return frames;
}

std::int64_t Datasets::episodes() const {
  return static_cast<std::int64_t>(stream ? stream->source.episodes.size()
                                          : train->episodes().size());
}

std::unique_ptr<dataset::BatchSource> make_train_loader(const TrainConfig& config,
                                                        const Datasets& datasets, DataShare share,
                                                        const LoaderStart& start, bool pin_memory) {
  if (datasets.stream)
    return make_stream_loader(config, *datasets.stream, share, start.step, pin_memory);
  auto options = map_loader_options(config, pin_memory);
  options.world = share.world;
  options.rank = share.rank;
  options.start = start.samples;
  options.even_batches = start.even_batches;
  if (config.dataset.image_transforms.enable) {
    options.transform = dataset::ImageTransforms(config.dataset.image_transforms);
    options.transform_seed = static_cast<std::uint64_t>(config.seed.value_or(0));
  }
  auto sampler =
      std::make_shared<const dataset::EpisodeAwareSampler>(make_sampler(config, datasets));
  const std::int64_t samples = sampler->size();
  return std::make_unique<dataset::MapLoader>(
      datasets.train, [sampler](std::uint64_t epoch) { return sampler->order(epoch); }, samples,
      std::move(options));
}

}  // namespace lerobot::train
