// An endless, deterministic stream of batches: what the training loop draws from, whether the
// dataset is local (MapLoader) or streamed.
#pragma once

#include <cstdint>

#include "lerobot/base/error.h"
#include "lerobot/dataset/batch.h"

namespace lerobot::dataset {

/// What a source has done since its construction. Times in seconds.
struct SourceStatistics {
  std::int64_t batches = 0;  // handed out by next()
  std::int64_t samples = 0;
  double waited_s = 0.0;  // next() took this long in total: what training waits for data
  // Of a streamed dataset.
  std::uint64_t bytes_read = 0;      // since the beginning, data and video files
  std::uint64_t reserved_bytes = 0;  // of the byte budget, now
  std::uint64_t resident_bytes = 0;  // compressed payload in memory, now
};

/// What next() throws after stop().
class LoaderStopped : public Error {
 public:
  LoaderStopped() : Error("the data loader was stopped") {}
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// The next batch; goes on with the next epoch by itself. Blocks until it is decoded. An error of
  /// a worker thread is thrown here, in the place of the batch that it belongs to, and again at
  /// every later call. Called by one thread at a time.
  virtual Batch next() = 0;
  /// next() in another thread that is blocked, or is called later, throws LoaderStopped at once.
  /// Thread-safe.
  virtual void stop() = 0;

  /// True when LeRobot's loader would be started anew for the next batch: it then draws a number
  /// from torch's default generator.
  virtual bool starts_epoch() const = 0;
  /// Batches of one epoch of this rank.
  virtual std::int64_t batches_per_epoch() const = 0;
  virtual SourceStatistics statistics() const = 0;
};

}  // namespace lerobot::dataset
