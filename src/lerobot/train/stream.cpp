#include "lerobot/train/stream.h"

#include <algorithm>
#include <malloc.h>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/base/threads.h"
#include "lerobot/dataset/episode_selection.h"
#include "lerobot/dataset/image_transforms.h"
#include "lerobot/hub/home.h"
#include "lerobot/streaming/sidecar_cache.h"
#include "lerobot/train/datasets.h"

namespace lerobot::train {
namespace {

using config::TrainConfig;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
/// LeRobot's seed of a stream under --seed=null.
constexpr std::uint64_t kSeedWithoutSeed = 42;
/// Fetch threads do nothing but wait; more than this many requests at a time help no server.
constexpr std::int64_t kMostFetchThreads = 64;
/// A disk is not faster when more threads read it, and each holds an episode's rows while it does.
constexpr std::int64_t kMostLocalFetchThreads = 4;

/// Episodes that a lane fetches at the same time.
std::int64_t max_num_shards(const TrainConfig& config) {
  return std::max<std::int64_t>(1, config.num_workers);
}

std::uint64_t byte_budget(const TrainConfig& config) {
  const double bytes = config.dataset.streaming_byte_budget_gb * kGiB;
  return bytes >= 1e18 ? std::uint64_t{1'000'000'000'000'000'000}
                       : static_cast<std::uint64_t>(std::max(1.0, bytes));
}

streaming::StreamingSetup setup_of(const TrainConfig& config, std::int64_t world) {
  return {.order = streaming::sample_order(config.dataset.streaming_order),
          .dp_world_size = world,
          .num_workers = config.num_workers,
          .batch_size = config.batch_size,
          .settings = {
              .seed = config.seed ? static_cast<std::uint64_t>(*config.seed) : kSeedWithoutSeed,
              .strategy = streaming::sampling_strategy(config.dataset.streaming_sampling_strategy),
              .episode_pool_size = config.dataset.streaming_episode_pool_size,
              .byte_budget = byte_budget(config)}};
}

/// What a run of this configuration gives its loader, for `lanes` lanes in this process.
struct Resources {
  std::int64_t decode_threads;
  std::int64_t samples_ahead;
  std::int64_t fetch_threads;
  std::int64_t decoders;
};

std::int64_t lanes_of(const streaming::VirtualTopology& topology, DataShare share) {
  const auto ranks = topology.ranks_of(share.rank, share.world);
  std::int64_t lanes = 0;
  for (std::int64_t rank = ranks.first; rank <= ranks.last; ++rank) lanes += topology.lanes(rank);
  return lanes;
}

Resources resources_of(const TrainConfig& config, const StreamRun& run, DataShare share) {
  const std::int64_t lanes = lanes_of(run.topology, share);
  const auto pool = streaming::lane_options(run.state.settings, run.topology.lanes(0)).pool_size;
  const auto cameras = static_cast<std::int64_t>(run.source.metadata->video_keys().size());
  Resources resources{};
  // More threads than CPUs decode no faster.
  resources.decode_threads =
      std::min<std::int64_t>(lanes * config.dataset.streaming_decode_threads, available_cpus());
  // Whatever the number of workers: their batches come in turn, and all threads work on the next
  // one. A whole batch at least, so that training and decoding overlap.
  resources.samples_ahead =
      std::max(config.batch_size, config.dataset.streaming_decoded_queue_size);
  resources.fetch_threads = std::min(
      run.remote ? kMostFetchThreads : kMostLocalFetchThreads,
      lanes *
          std::min(max_num_shards(config),
                   std::max<std::int64_t>(1, pool + config.dataset.streaming_prefetch_episodes)));
  // A decoder turns from one episode to another without being opened anew, so that no more are of
  // use than there are threads and cameras.
  resources.decoders = std::max<std::int64_t>(1, resources.decode_threads * cameras);
  if (config.dataset.video_decoder_cache_size)
    resources.decoders = std::min(resources.decoders, *config.dataset.video_decoder_cache_size);
  return resources;
}

std::shared_ptr<const streaming::VideoIndex> open_index(const TrainConfig& config,
                                                        const dataset::DatasetMetadata& metadata,
                                                        streaming::DatasetPlace& place) {
  const auto workers = static_cast<int>(max_num_shards(config));
  const auto pinned = place.pinned();
  const streaming::SidecarIdentity identity = streaming::expected_identity(
      place.repo_id(),
      pinned ? pinned->revision
             : config.dataset.revision.value_or(metadata.info().codebase_version),
      place.data_root(), streaming::video_paths(metadata), *place.payload(), workers);
  streaming::SidecarCacheOptions options;
  options.lerobot_home = hub::lerobot_home();
  options.lock_timeout_s = config.dataset.streaming_sidecar_lock_timeout_s;
  options.build.workers = workers;
  options.build.progress = streaming::log_progress();
  options.build.poll = throw_when_interrupted;
  options.fetch_published = [&](const std::filesystem::path& file) {
    return place.fetch_published(identity, file);
  };
  return streaming::prepare_sidecar(identity, *place.payload(), options);
}

double gibibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / kGiB; }

}  // namespace

std::size_t stream_connections(const TrainConfig& config) {
  return static_cast<std::size_t>(config.dataset.streaming_native_http_connections.value_or(
      std::max<std::int64_t>(8, max_num_shards(config))));
}

StreamRun open_stream(const TrainConfig& config, streaming::DatasetPlace& place,
                      std::shared_ptr<const dataset::DatasetMetadata> metadata,
                      std::int64_t world) {
  streaming::StreamSource source;
  source.metadata = metadata;
  source.episodes = dataset::select_episodes(
      metadata->info().total_episodes, config.dataset.episodes, config.dataset.exclude_episodes);
  std::sort(source.episodes.begin(), source.episodes.end());
  source.layout = std::make_shared<const dataset::BatchLayout>(
      metadata, config.policy->delta_indices(), config.tolerance_s);
  source.payload = place.payload();
  std::shared_ptr<const streaming::VideoIndex> index;
  if (!metadata->video_keys().empty()) index = open_index(config, *metadata, place);
  throw_when_interrupted();
  source.reader = std::make_shared<streaming::EpisodeReader>(metadata, index, source.payload,
                                                             config.tolerance_s);
  ::malloc_trim(0);  // what reading the metadata took
  const streaming::EpisodeList selected = source.episode_list();
  streaming::StreamingState state = streaming::initial_state(setup_of(config, world), selected);
  streaming::VirtualTopology topology = streaming::topology_of(state, selected);
  return {std::move(source), place.is_remote(), std::move(state), std::move(topology)};
}

void resume_stream(StreamRun& run, const TrainConfig& config,
                   const streaming::StreamingState* recorded, std::int64_t steps,
                   std::int64_t dp_world_size, std::int64_t batch_size, std::int64_t world) {
  const streaming::EpisodeList selected = run.source.episode_list();
  streaming::StreamingSetup as_lerobot = setup_of(config, dp_world_size);
  as_lerobot.batch_size = batch_size;
  streaming::ResumedStream resumed = streaming::resume_stream(
      recorded ? *recorded : streaming::initial_state(as_lerobot, selected), steps,
      setup_of(config, world), selected);
  if (!resumed.exact)
    log::warning("{}", resumed.explanation);
  else if (!resumed.explanation.empty())
    log::info("{}", resumed.explanation);
  run.state = std::move(resumed.state);
  run.topology = std::move(resumed.topology);
}

std::unique_ptr<streaming::StreamLoader> make_stream_loader(const TrainConfig& config,
                                                            const StreamRun& run, DataShare share,
                                                            std::int64_t step, bool pin_memory) {
  const Resources resources = resources_of(config, run, share);
  streaming::StreamLoaderOptions options{
      .plan = {.topology = run.topology,
               .step = step,
               .world = share.world,
               .rank = share.rank,
               .settings = run.state.settings,
               .prefetch_episodes = config.dataset.streaming_prefetch_episodes},
      .samples_ahead = resources.samples_ahead,
      .batches_ahead = std::max<std::int64_t>(1, config.prefetch_factor),
      .decode_threads = resources.decode_threads,
      .fetch_threads = resources.fetch_threads,
      .decoder_cache_size = resources.decoders,
      .pin_memory = pin_memory,
      .transform = {},
      .transform_in_order = config.num_workers == 0};
  if (config.dataset.image_transforms.enable) {
    options.transform = dataset::ImageTransforms(config.dataset.image_transforms);
    options.transform_seed = run.state.settings.seed;
  }
  return std::make_unique<streaming::StreamLoader>(run.source, std::move(options));
}

std::vector<std::string> stream_panel(const TrainConfig& config, const StreamRun& run,
                                      DataShare share) {
  std::vector<std::string> lines;
  const auto add = [&lines]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    lines.push_back(fmt::format(format, std::forward<Args>(args)...));
  };
  const config::DatasetConfig& options = config.dataset;
  const Resources resources = resources_of(config, run, share);
  const std::int64_t lanes = run.topology.lanes(0);
  const auto pool = streaming::lane_options(run.state.settings, lanes);
  if (lanes < config.num_workers)
    add("{} workers instead of {}: no more than the {} episodes", lanes, config.num_workers,
        run.source.episodes.size());
  std::string where = run.source.payload->describe("");
  while (where.size() > 1 && where.ends_with('/')) where.pop_back();
  add("Streaming {}: {} order, seed {}, strategy {}", where, streaming::name_of(run.state.order),
      run.state.settings.seed, streaming::name_of(run.state.settings.strategy));
  add("dataset.streaming_episode_pool_size={} -> {} episodes a worker, {} workers",
      options.streaming_episode_pool_size ? fmt::to_string(*options.streaming_episode_pool_size)
                                          : "null",
      pool.pool_size, lanes);
  if (run.topology.ranks() != share.world)
    add("{} process{} the workers of {} recorded ranks, each of which has its own byte budget",
        share.world, share.world == 1 ? " runs" : "es share", run.topology.ranks());
  add("dataset.streaming_prefetch_episodes={} -> {} episodes ahead of each worker's pool",
      options.streaming_prefetch_episodes, options.streaming_prefetch_episodes);
  add("dataset.streaming_byte_budget_gb={} -> {:.3f} GiB a worker",
      options.streaming_byte_budget_gb, gibibytes(pool.byte_budget));
  add("dataset.streaming_decode_threads={} -> {} threads for all workers ({} CPUs)",
      options.streaming_decode_threads, resources.decode_threads, available_cpus());
  add("dataset.streaming_decoded_queue_size={} -> {} samples ahead, all workers together",
      options.streaming_decoded_queue_size, resources.samples_ahead);
  add("dataset.video_decoder_cache_size={} -> {} open decoders",
      options.video_decoder_cache_size ? fmt::to_string(*options.video_decoder_cache_size) : "null",
      resources.decoders);
  add("{} episodes are fetched at the same time", resources.fetch_threads);
  return lines;
}

}  // namespace lerobot::train
