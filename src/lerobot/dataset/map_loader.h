// Batches of a local dataset, decoded ahead by threads of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lerobot/dataset/batch_sharding.h"
#include "lerobot/dataset/batch_source.h"
#include "lerobot/dataset/map_dataset.h"
#include "lerobot/dataset/pixel_transform.h"

namespace lerobot::dataset {

/// The positions of an epoch (0, 1, ...) in the order in which they are drawn: for training
/// EpisodeAwareSampler::order(), for evaluation the same list every time. Called by one thread at a
/// time.
using EpochOrder = std::function<std::vector<std::int64_t>(std::uint64_t epoch)>;

struct MapLoaderOptions {
  std::int64_t batch_size = 8;
  /// Decode threads. 0: next() decodes in the thread that calls it.
  std::int64_t num_workers = 0;
  /// Batches that are finished or under work ahead of the consumer. LeRobot counts them per worker,
  /// because its workers each fill whole batches; here all threads fill rows of the earliest batch,
  /// so that this many in all keep every thread busy. When the rows of that many batches are fewer
  /// than the threads, as many batches as the threads need are in work.
  std::int64_t prefetch_factor = 4;
  std::int64_t world = 1;
  std::int64_t rank = 0;
  /// Fills the last batch of an epoch also in a single process (BatchSharder).
  bool even_batches = false;
  /// Where to begin: with sample `start.sample` of epoch `start.epoch`, whatever the batch size
  /// that led there.
  EpochPosition start;
  /// Allocates batches in page-locked memory (CUDA builds).
  bool pin_memory = false;
  /// Decoders that all threads together keep open.
  std::int64_t decoder_cache_size = 100;
  /// False: the batches of an epoch are begun only when its first one is asked for (evaluation).
  bool prefetch_across_epochs = true;
  /// Random transforms of RGB cameras; empty: none. With num_workers = 0 they draw from torch's
  /// default generator in the order of consumption, as LeRobot does. With decode threads every
  /// sample's camera has a generator seeded by (transform_seed, epoch, position in the epoch,
  /// camera), so that threads and resuming do not change what is drawn.
  PixelTransform transform;
  std::uint64_t transform_seed = 0;
};

/// Batches come strictly in the order of the sampler whatever the number of threads, and an error
/// comes in the place of the batch that it belongs to. The loader itself holds at most
/// prefetch_factor + 2 batches; a batch's memory is used again as soon as the consumer has dropped
/// it. next() belongs to one thread; stop() and statistics() may be called by any.
class MapLoader : public BatchSource {
 public:
  /// `samples` is the length of every order. Throws Error on numbers out of range. Threads start
  /// with the first next().
  MapLoader(std::shared_ptr<const MapDataset> dataset, EpochOrder order, std::int64_t samples,
            MapLoaderOptions options = {});
  ~MapLoader() override;

  Batch next() override;
  void stop() override;
  std::int64_t batches_per_epoch() const override;
  /// True when the next batch is the first one of an epoch.
  bool starts_epoch() const override;
  SourceStatistics statistics() const override;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lerobot::dataset
