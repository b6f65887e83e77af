// Batches of a streamed dataset: episodes fetched ahead, samples decoded ahead, by threads of this
// process.
#pragma once

#include <cstdint>
#include <memory>

#include "lerobot/dataset/batch_source.h"
#include "lerobot/dataset/pixel_transform.h"
#include "lerobot/streaming/stream_planner.h"
#include "lerobot/streaming/stream_source.h"

namespace lerobot::streaming {

struct StreamLoaderOptions {
  StreamPlan plan;

  // None of the following has a say in the order.
  /// Samples that may be decoded ahead of the batch that training works on or waits for, all lanes
  /// together. Below a batch, training and decoding don't overlap.
  std::int64_t samples_ahead = 8;
  /// Batches that may be begun, the one that training waits for included.
  std::int64_t batches_ahead = 4;
  std::int64_t decode_threads = 2;
  std::int64_t fetch_threads = 4;
  std::int64_t decoder_cache_size = 8;
  bool pin_memory = false;
  /// Random transforms of RGB cameras; empty: none.
  dataset::PixelTransform transform;
  std::uint64_t transform_seed = 0;
  /// True (--num_workers=0): transforms draw from torch's default generator, in the thread that
  /// calls next(), in the order of the samples. False: on the decode threads; each sample's camera
  /// has a generator seeded by (transform_seed, lane, epoch, position in the epoch, camera).
  bool transform_in_order = false;
};

/// Batches come strictly in the order that the options and the dataset give, and an error comes in
/// the place of the batch that it belongs to. next() belongs to one thread; stop() and statistics()
/// may be called by any.
class StreamLoader : public dataset::BatchSource {
 public:
  /// Plans every lane up to its position; nothing is fetched yet. Throws Error as StreamPlanner
  /// does, and for an option below 1.
  StreamLoader(StreamSource source, StreamLoaderOptions options);
  ~StreamLoader() override;

  dataset::Batch next() override;
  void stop() override;
  bool starts_epoch() const override;
  std::int64_t batches_per_epoch() const override;
  dataset::SourceStatistics statistics() const override;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lerobot::streaming
