#include "lerobot/streaming/virtual_topology.h"

#include <algorithm>
#include <utility>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"

namespace lerobot::streaming {
namespace {

std::vector<LaneProgress> from_the_start(const std::vector<std::int64_t>& lanes) {
  std::vector<LaneProgress> ranks;
  for (const std::int64_t count : lanes) {
    if (count < 1) fail("a rank of a stream must have at least 1 worker, found {}", count);
    ranks.push_back({std::vector<std::int64_t>(static_cast<std::size_t>(count)), 0});
  }
  return ranks;
}

std::int64_t lanes_of(const LaneProgress& progress) {
  return static_cast<std::int64_t>(progress.samples.size());
}

}  // namespace

LaneProgress after_batches(LaneProgress from, std::int64_t batches, std::int64_t batch_size) {
  const std::int64_t lanes = lanes_of(from), each = batches / lanes, rest = batches % lanes;
  for (std::int64_t i = 0; i < lanes; ++i) {
    std::int64_t& samples = from.samples[static_cast<std::size_t>((from.turn + i) % lanes)];
    const auto more = checked_mul(each + (i < rest ? 1 : 0), batch_size, "the samples of a worker");
    samples = checked_add(samples, more, "the samples of a worker");
  }
  from.turn = (from.turn + rest) % lanes;
  return from;
}

LaneProgress divide_samples(std::int64_t samples, std::int64_t lanes, std::int64_t batch_size) {
  LaneProgress progress{std::vector<std::int64_t>(static_cast<std::size_t>(lanes)), 0};
  progress = after_batches(std::move(progress), samples / batch_size, batch_size);
  const std::int64_t rest = samples % batch_size;
  if (rest == 0) return progress;
  progress.samples[static_cast<std::size_t>(progress.turn)] += rest;
  progress.turn = (progress.turn + 1) % lanes;
  return progress;
}

VirtualTopology::VirtualTopology(std::int64_t batch_size, const std::vector<std::int64_t>& lanes)
    : VirtualTopology(batch_size, from_the_start(lanes), 0) {}

VirtualTopology::VirtualTopology(std::int64_t batch_size, std::vector<LaneProgress> ranks,
                                 std::int64_t first_step)
    : batch_size_(batch_size), start_(std::move(ranks)), first_step_(first_step) {
  if (batch_size < 1) fail("the batch size must be positive, found {}", batch_size);
  if (first_step < 0) fail("the first step of a stream must not be negative, found {}", first_step);
  if (start_.empty()) fail("a stream needs at least 1 data-parallel rank, found 0");
  checked_mul(batch_size_, this->ranks(), "the global batch");
  for (const LaneProgress& rank : start_) {
    if (rank.samples.empty()) fail("a rank of a stream must have at least 1 worker, found 0");
    if (rank.turn < 0 || rank.turn >= lanes_of(rank))
      fail("the turn of a rank's workers must be below {}, found {}", lanes_of(rank), rank.turn);
    for (const std::int64_t samples : rank.samples)
      if (samples < 0) fail("the samples of a worker must not be negative, found {}", samples);
  }
}

std::int64_t VirtualTopology::lanes(std::int64_t rank) const {
  return lanes_of(start_.at(static_cast<std::size_t>(rank)));
}

std::int64_t VirtualTopology::batches_until(std::int64_t step) const {
  if (step < first_step_)
    fail("step {} lies before the first step of the stream, {}", step, first_step_);
  return step - first_step_;
}

std::int64_t VirtualTopology::lane(std::int64_t rank, std::int64_t step) const {
  const LaneProgress& start = start_.at(static_cast<std::size_t>(rank));
  const std::int64_t lanes = lanes_of(start);
  return (start.turn + batches_until(step) % lanes) % lanes;
}

LaneProgress VirtualTopology::progress(std::int64_t rank, std::int64_t step) const {
  return after_batches(start_.at(static_cast<std::size_t>(rank)), batches_until(step), batch_size_);
}

std::vector<LaneProgress> VirtualTopology::progress(std::int64_t step) const {
  std::vector<LaneProgress> all;
  for (std::int64_t rank = 0; rank < ranks(); ++rank) all.push_back(progress(rank, step));
  return all;
}

std::int64_t VirtualTopology::process_batch(std::int64_t process, std::int64_t processes) const {
  if (process < 0 || process >= processes)
    fail("Invalid distributed rank/world size: rank {} of {}", process, processes);
  if (global_batch() % processes != 0)
    fail("a global batch of {} samples ({} ranks of {}) can't be shared by {} processes",
         global_batch(), ranks(), batch_size_, processes);
  return global_batch() / processes;
}

std::vector<BatchPart> VirtualTopology::parts(std::int64_t step, std::int64_t process,
                                              std::int64_t processes) const {
  const std::int64_t rows = process_batch(process, processes);
  std::vector<BatchPart> result;
  for (std::int64_t row = process * rows, end = row + rows; row < end;) {
    const std::int64_t rank = row / batch_size_, first = row % batch_size_;
    const std::int64_t taken = std::min(end - row, batch_size_ - first);
    result.push_back({rank, lane(rank, step), first, taken});
    row += taken;
  }
  return result;
}

VirtualTopology::RankRange VirtualTopology::ranks_of(std::int64_t process,
                                                     std::int64_t processes) const {
  const std::int64_t rows = process_batch(process, processes);
  return {process * rows / batch_size_, (process * rows + rows - 1) / batch_size_};
}

}  // namespace lerobot::streaming
