#include "lerobot/train/datasets.h"

#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/dataset/episode_selection.h"
#include "lerobot/dataset/episodes.h"
#include "lerobot/dataset/image_transforms.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/dataset/stats.h"
#include "lerobot/hub/home.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

}  // namespace

dataset::MapLoaderOptions map_loader_options(const config::TrainConfig& config, bool pin_memory) {
  dataset::MapLoaderOptions options;
  options.batch_size = config.batch_size;
  options.num_workers = config.num_workers;
  options.prefetch_factor = config.prefetch_factor;
  options.pin_memory = pin_memory;
  if (config.dataset.video_decoder_cache_size)
    options.decoder_cache_size = *config.dataset.video_decoder_cache_size;
  return options;
}

fs::path dataset_root(const config::DatasetConfig& config) {
  if (config.root) {
    if (!fs::is_directory(*config.root))
      fail(
          "--dataset.root={} is not a folder; expected the root of a LeRobotDataset v3 (with "
          "meta/, "
          "data/ and videos/)",
          *config.root);
    return *config.root;
  }
  const fs::path root = hub::lerobot_home() / config.repo_id;
  if (!fs::exists(root / "meta" / "info.json"))
    fail(
        "dataset {} is not on this machine (looked for {}); downloading from the Hub is not "
        "supported "
        "yet: pass --dataset.root=FOLDER, or download it there with "
        "`hf download --repo-type=dataset {} --local-dir {}`",
        config.repo_id, (root / "meta" / "info.json").string(), config.repo_id, root.string());
  return root;
}

std::shared_ptr<dataset::DatasetMetadata> open_metadata(const config::TrainConfig& config) {
  auto metadata =
      config.dataset.streaming
          ? open_stream_metadata(config)
          : dataset::DatasetMetadata::open(dataset_root(config.dataset), config.dataset.repo_id,
                                           config.dataset.depth_output_unit);
  if (config.dataset.use_imagenet_stats) {
    auto stats = metadata->stats();
    dataset::use_imagenet_stats(stats, metadata->info());
    metadata->set_stats(std::move(stats));
  }
  return metadata;
}

Datasets open_datasets(const config::TrainConfig& config,
                       std::shared_ptr<dataset::DatasetMetadata> metadata, std::int64_t world) {
  if (config.dataset.streaming)
    return {.metadata = metadata,
            .train = nullptr,
            .held_out = nullptr,
            .stream = open_stream(config, metadata, world)};
  const auto selected = dataset::select_episodes(
      metadata->info().total_episodes, config.dataset.episodes, config.dataset.exclude_episodes);
  const auto split =
      dataset::split_episodes(metadata->episodes(), selected, config.dataset.eval_split);
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

dataset::EpisodeAwareSampler make_sampler(const config::TrainConfig& config,
                                          const Datasets& datasets) {
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

std::unique_ptr<dataset::BatchSource> make_train_loader(const config::TrainConfig& config,
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
