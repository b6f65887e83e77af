// Who delivers which samples at which step of the loop.
//
// Ranks, the lanes of each and the batch of a rank make up a virtual topology: the shape in which a
// run's order of samples is defined. At step s a virtual rank delivers one batch from one of its
// lanes; lanes take turns. The batches of all virtual ranks, one after the other, are the global
// batch of the step. Processes share the rows of the global batch in contiguous, equal parts. Their
// number needs not be that of the virtual ranks, so that a run that goes on with another number of
// them sees the same samples at every step.
#pragma once

#include <cstdint>
#include <vector>

namespace lerobot::streaming {

/// Where the lanes of one virtual rank stand.
struct LaneProgress {
  std::vector<std::int64_t> samples;  ///< delivered so far, by lane
  std::int64_t turn = 0;              ///< the lane that delivers next

  bool operator==(const LaneProgress&) const = default;
};

/// `from` after `batches` more batches: with q, r = divmod(batches, lanes), every lane delivers q
/// of them and the r lanes from the turn on one more.
LaneProgress after_batches(LaneProgress from, std::int64_t batches, std::int64_t batch_size);

/// `samples` divided among `lanes` as the turns do from the start: whole batches, then what is
/// left, less than a batch, to the lane whose turn it is.
LaneProgress divide_samples(std::int64_t samples, std::int64_t lanes, std::int64_t batch_size);

/// Rows of the global batch that come from one lane.
struct BatchPart {
  std::int64_t rank = 0;  ///< virtual
  std::int64_t lane = 0;  ///< of that rank
  /// Rows of the virtual rank's batch: the lane draws batch_size() samples in the step, of which
  /// those from first_row on are meant.
  std::int64_t first_row = 0;
  std::int64_t rows = 0;

  bool operator==(const BatchPart&) const = default;
};

/// Immutable, thread-safe. Functions of a step throw Error when it lies before the first one.
class VirtualTopology {
 public:
  /// From the start of a run. `lanes`: of every virtual rank. Throws Error unless the batch, the
  /// number of ranks and that of lanes of each are positive.
  VirtualTopology(std::int64_t batch_size, const std::vector<std::int64_t>& lanes);
  /// From the middle of a run: every virtual rank's lanes as they stand before `first_step`. Throws
  /// Error also when a number of samples is negative or a turn is no lane.
  VirtualTopology(std::int64_t batch_size, std::vector<LaneProgress> ranks,
                  std::int64_t first_step);

  std::int64_t batch_size() const { return batch_size_; }
  std::int64_t ranks() const { return static_cast<std::int64_t>(start_.size()); }
  std::int64_t lanes(std::int64_t rank) const;
  std::int64_t global_batch() const { return batch_size_ * ranks(); }
  std::int64_t first_step() const { return first_step_; }

  /// The lane that delivers virtual rank `rank`'s batch of step `step` (0, 1, ... of the whole
  /// run).
  std::int64_t lane(std::int64_t rank, std::int64_t step) const;
  /// Where the rank's lanes stand before step `step`. Costs nothing, whatever the step.
  LaneProgress progress(std::int64_t rank, std::int64_t step) const;
  /// The same of all virtual ranks.
  std::vector<LaneProgress> progress(std::int64_t step) const;

  /// What process `process` of `processes` delivers at `step`, in the order of its rows. Throws
  /// Error unless 0 <= process < processes and processes divides global_batch().
  std::vector<BatchPart> parts(std::int64_t step, std::int64_t process,
                               std::int64_t processes) const;
  /// The virtual ranks that the process has a part of, at every step the same: [first, last].
  struct RankRange {
    std::int64_t first = 0;
    std::int64_t last = 0;
    bool operator==(const RankRange&) const = default;
  };
  RankRange ranks_of(std::int64_t process, std::int64_t processes) const;

 private:
  std::int64_t batches_until(std::int64_t step) const;
  std::int64_t process_batch(std::int64_t process, std::int64_t processes) const;

  std::int64_t batch_size_;
  std::vector<LaneProgress> start_;
  std::int64_t first_step_;
};

}  // namespace lerobot::streaming
