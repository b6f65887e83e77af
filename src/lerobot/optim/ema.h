// Exponential moving average of all parameters, as diffusers' EMAModel keeps it for LeRobot.
//
// At optimizer update t = 1, 2, ... with u = max(0, t - update_after_step - 1) the decay is 0 while
// u is 0, then 1 - (1 + u / inv_gamma)^-power, clamped to [min_decay, decay]; and
// shadow -= (1 - decay) * (shadow - parameter). Buffers are not averaged.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/base/parallel_loop.h"
#include "lerobot/config/train_config.h"
#include "lerobot/nn/module.h"

namespace lerobot::optim {

/// The entries of ema_state.pt, in the order of the file.
struct EmaState {
  double decay = 0.9999;
  double min_decay = 0.0;
  std::int64_t optimization_step = 0;
  std::int64_t update_after_step = 0;
  bool use_ema_warmup = true;
  double inv_gamma = 1.0;
  double power = 0.75;
  std::vector<at::Tensor> shadow_params;  // in parameter order
};

/// Used from one thread at a time.
class ExponentialMovingAverage {
 public:
  /// Starts as a copy of `parameters` (named_parameters() of the policy), on their devices. A
  /// constant decay (config.decay) is a lower and upper bound at once; the first update is a copy
  /// all the same. Throws UsageError naming the option for numbers out of range.
  ExponentialMovingAverage(const config::EmaConfig& config, nn::NamedTensors parameters);

  /// To be called after every optimizer update.
  void update();
  /// The decay of optimizer update number `update` (from 1).
  double decay_at(std::int64_t update) const;
  std::int64_t updates() const { return state_.optimization_step; }

  /// The averages under the parameters' names: handles, for a checkpoint's weights.
  nn::NamedTensors shadow() const;

  /// Tensors are handles, not copies.
  const EmaState& state() const { return state_; }
  /// Goes on from `state`, whose settings replace the configuration's. Throws Error when its
  /// tensors are not those of the parameters; nothing has changed then.
  void load_state(const EmaState& state);

 private:
  nn::NamedTensors parameters_;
  EmaState state_;
  ParallelLoop loop_{"ema"};
};

}  // namespace lerobot::optim
