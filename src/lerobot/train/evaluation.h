// The held-out loss: the mean of the batches' losses, whatever the number of processes.
//
// Batches are those of one process: the held-out frames in order, --batch_size at a time, the last
// one short. Rank r takes the batches r, r + world, ...; no sample is counted twice. (LeRobot lets
// every rank take as many, the surplus filled with samples from the beginning.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lerobot/train/autocast.h"
#include "lerobot/train/session.h"

namespace lerobot::train {

class Evaluation {
 public:
  /// For a session whose datasets hold out episodes.
  explicit Evaluation(Session& session);

  /// The loss on at most --max_eval_samples held-out frames, the same number on every rank. All
  /// ranks call it together.
  double loss();

 private:
  Session& session_;
  std::optional<at::ScalarType> autocast_;
  std::int64_t batches_;      ///< of all ranks
  std::int64_t own_batches_;  ///< that count
  /// A sharded model is gathered by all ranks together: as many forward passes on each of them,
  /// some of which do not count.
  std::int64_t passes_;
  std::unique_ptr<dataset::MapLoader> loader_;  ///< null when there is nothing to do
};

}  // namespace lerobot::train
