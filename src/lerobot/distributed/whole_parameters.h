// Parameters that every rank holds whole under sharded training: single numbers, and what
// ignored_modules names.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/distributed/communicator.h"
#include "lerobot/distributed/wrap_units.h"

namespace lerobot::distributed {

/// Averages their gradients over all ranks, all in one operation. (LeRobot leaves them to each
/// rank, so that the ranks drift apart.)
class WholeParameters {
 public:
  WholeParameters(std::vector<UnitParameter> parameters, const Communicator& all);

  const std::vector<UnitParameter>& parameters() const { return parameters_; }

  /// A parameter without a gradient on every rank has none afterwards.
  void average_gradients();

 private:
  std::vector<UnitParameter> parameters_;
  std::vector<at::Tensor> trainable_;
  Communicator all_;
};

}  // namespace lerobot::distributed
