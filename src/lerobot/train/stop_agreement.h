// SIGINT and SIGTERM in a run of several processes: whoever gets one, all stop after the same step.
#pragma once

#include <ATen/core/Tensor.h>

#include "lerobot/distributed/communicator.h"

namespace lerobot::train {

/// The ranks exchange one number a step, which travels while the step is computed: begin_step()
/// does not wait, and by the end of the step the answer has long been there. A signal that arrives
/// during a step therefore stops the run after the next one. A single process stops after the step
/// under way.
class StopAgreement {
 public:
  explicit StopAgreement(const distributed::Communicator& ranks) : ranks_(ranks) {}

  void begin_step();
  /// The signal after which all ranks stop now, or 0: the same on every rank.
  int end_step();

 private:
  distributed::Communicator ranks_;
  at::Tensor signal_;
  distributed::Pending exchange_;
};

}  // namespace lerobot::train
