// Streams of datasets in folders, and the dataset in memory that they are compared with.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include "lerobot/dataset/map_dataset.h"
#include "lerobot/streaming/local_payload.h"
#include "lerobot/streaming/sidecar_cache.h"
#include "lerobot/streaming/stream_loader.h"
#include "lerobot/video/decoder_cache.h"
#include "tests/streaming/made_dataset.h"

namespace lerobot::streaming {

struct StreamedDataset {
  std::shared_ptr<dataset::DatasetMetadata> metadata;
  fs::path root;
  std::shared_ptr<const VideoIndex> index;
  config::DeltaIndices windows;

  /// A source of the selected episodes, for one loader; `through` replaces the payload.
  StreamSource source(std::optional<std::vector<std::int64_t>> episodes = std::nullopt,
                      std::shared_ptr<Payload> through = nullptr) const {
    StreamSource source;
    source.metadata = metadata;
    source.payload = through ? through : std::make_shared<LocalPayload>(root);
    source.layout = std::make_shared<const dataset::BatchLayout>(metadata, windows, 1e-4);
    source.reader = std::make_shared<EpisodeReader>(metadata, index, source.payload, 1e-4);
    if (episodes) {
      source.episodes = *episodes;
    } else {
      source.episodes.resize(static_cast<std::size_t>(metadata->episodes().size()));
      std::iota(source.episodes.begin(), source.episodes.end(), std::int64_t{0});
    }
    return source;
  }
};

inline StreamedDataset open_streamed(const fs::path& root, const fs::path& home,
                                     config::DeltaIndices windows = {}) {
  StreamedDataset opened;
  opened.metadata = dataset::DatasetMetadata::open(root, "test/stream");
  opened.root = root;
  LocalPayload payload(root);
  opened.windows = std::move(windows);
  if (!opened.metadata->video_keys().empty()) {
    const SidecarIdentity identity = expected_identity("test/stream", "v3.0", local_data_root(root),
                                                       video_paths(*opened.metadata), payload, 2);
    SidecarCacheOptions options;
    options.lerobot_home = home;
    options.build.workers = 2;
    opened.index = prepare_sidecar(identity, payload, options);
  }
  return opened;
}

/// Options of a run from its beginning.
inline StreamLoaderOptions stream_options(const StreamSource& source, std::int64_t num_workers,
                                          std::int64_t batch_size,
                                          std::optional<std::int64_t> pool = std::nullopt,
                                          std::uint64_t budget = std::uint64_t{1} << 33,
                                          std::int64_t virtual_ranks = 1) {
  const EpisodeList selected = source.episode_list();
  const StreamingState state = initial_state({.order = SampleOrder::kWorker,
                                              .dp_world_size = virtual_ranks,
                                              .num_workers = num_workers,
                                              .batch_size = batch_size,
                                              .settings = {.seed = 1000,
                                                           .strategy = SamplingStrategy::kRemaining,
                                                           .episode_pool_size = pool,
                                                           .byte_budget = budget}},
                                             selected);
  return {.plan = {.topology = topology_of(state, selected),
                   .world = virtual_ranks,
                   .settings = state.settings},
          .transform = {},
          .transform_in_order = num_workers == 0};
}

/// Compares every row of `batch` with the sample of the dataset in memory.
inline void expect_equal_to_map_style(const dataset::Batch& batch, const dataset::MapDataset& map,
                                      video::DecoderCache& decoders) {
  const std::vector<std::int64_t> first_rows = map.first_rows();
  const auto& episodes = map.metadata().episodes();
  auto buffer = map.layout().allocate(1);
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    const std::int64_t frame = batch.frame_index[at];
    const std::int64_t episode = batch.at("episode_index")[row].item().toLong();
    const std::int64_t position =
        first_rows[static_cast<std::size_t>(episode)] + frame - episodes.from(episode);
    map.fill_values(position, 0, *buffer);
    for (std::size_t camera = 0; camera < map.layout().cameras(); ++camera)
      map.fill_camera(camera, position, 0, *buffer, decoders);
    ASSERT_EQ(batch.tensors.size(), buffer->batch.tensors.size());
    for (const auto& [key, expected] : buffer->batch.tensors)
      ASSERT_TRUE(at::equal(batch.at(key)[row], expected[0]))
          << key << " of frame " << frame << " of episode " << episode;
    ASSERT_EQ(batch.task[at], buffer->batch.task[0]);
    for (const auto& [key, texts] : buffer->batch.strings)
      ASSERT_EQ(batch.strings.at(key)[at], texts[0]);
  }
}

}  // namespace lerobot::streaming
