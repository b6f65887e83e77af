// Which positions of an epoch's order make up a rank's batches: accelerate's sharding with even
// batches, and where a resumed run goes on.
//
// Batch g of the epoch holds the positions g*B .. g*B + B - 1 and goes to rank g mod W. With one
// process the last batch is short, unless even batches are asked for. With more, every rank gets
// the same number of full batches: what lacks at the end is filled from the beginning of the epoch,
// so that global position p stands for sample p mod N. A step of all ranks together covers the same
// positions however many ranks share them. The filler is the epoch's beginning also after a resume
// in the middle of an epoch (LeRobot 0.6 takes the first batches after the resume point instead).
#pragma once

#include <cstdint>
#include <vector>

namespace lerobot::dataset {

/// One rank's view of an epoch of `samples` samples. A plain value; thread-safe.
class BatchSharder {
 public:
  /// `first_sample`: samples of the epoch that are done already, when a run goes on in its middle;
  /// the batches are cut from there on. `even_batches`: a single process fills its last batch too,
  /// as it goes on a run of several. Throws Error unless samples, batch_size and world are
  /// positive, 0 <= rank < world and 0 <= first_sample < samples.
  BatchSharder(std::int64_t samples, std::int64_t batch_size, std::int64_t world = 1,
               std::int64_t rank = 0, std::int64_t first_sample = 0, bool even_batches = false);

  /// Batches of the epoch: ceil(ceil((samples - first_sample) / batch_size) / world), the same on
  /// every rank.
  std::int64_t batches_per_epoch() const { return batches_per_epoch_; }
  /// Positions in the epoch's order of this rank's batch number `batch` (0 <= batch <
  /// batches_per_epoch()). Always batch_size of them, but for the last batch of a single process
  /// without even batches.
  std::vector<std::int64_t> positions(std::int64_t batch) const;

 private:
  std::int64_t samples_;
  std::int64_t batch_size_;
  std::int64_t world_;
  std::int64_t rank_;
  std::int64_t first_sample_;
  bool even_batches_;
  std::int64_t batches_per_epoch_;
};

/// A place in the endless sequence of batches.
struct EpochPosition {
  std::int64_t epoch = 0;
  /// Batches of that epoch that every rank has had.
  std::int64_t batch = 0;
  /// Samples of that epoch that all ranks together have had, at most all of them.
  std::int64_t sample = 0;

  bool operator==(const EpochPosition&) const = default;
};

/// Where a run stands after `step` micro-batches, with the batch size and the number of
/// data-parallel processes that it was trained with. Throws Error when step is negative, or as
/// BatchSharder does.
EpochPosition position_after(std::int64_t step, std::int64_t samples, std::int64_t batch_size,
                             std::int64_t world);

}  // namespace lerobot::dataset
