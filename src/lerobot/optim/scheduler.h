// Learning-rate schedules: torch's LambdaLR with LeRobot's and diffusers' factors.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/config/optim_config.h"
#include "lerobot/optim/optimizer.h"

namespace lerobot::optim {

/// The factor on the initial learning rate at scheduler step t = 0, 1, ...
using Schedule = std::function<double(std::int64_t)>;

/// The factors of `config` for a run of `steps` steps (micro-batches). `default_lr` is the
/// optimizer's rate (the polynomial schedule ends at 1e-7 absolute). Throws UsageError naming the
/// option for numbers that have no schedule and for names that diffusers' get_scheduler, called as
/// LeRobot does, refuses.
///
/// - constant_with_warmup, cosine_annealing_with_warmup, cosine_decay_with_warmup, vqbet:
/// LeRobot's.
/// - diffuser: by name, cosine, linear, constant, constant_with_warmup, cosine_with_restarts (one
///   cycle), polynomial (power 1). Past the end of the run the cosine rises again, as in diffusers.
Schedule make_schedule(const config::SchedulerConfig& config, std::int64_t steps,
                       double default_lr);

/// Sets every group's rate to initial_lr * factor(t). Stepped once a micro-batch, after the
/// optimizer: after t calls of step() the rates are those of step t + 1 of the run.
class Scheduler {
 public:
  /// Remembers every group's rate as its initial_lr (unless it has one) and sets the rates of t =
  /// 0. `optimizer` must outlive the scheduler.
  Scheduler(const config::SchedulerConfig& config, Optimizer& optimizer, std::int64_t steps);

  void step();
  /// t: how often step() was called.
  std::int64_t last_epoch() const { return last_epoch_; }

  /// scheduler_state.json: the state_dict() of torch's LambdaLR.
  Json state() const;
  /// Goes on from state(), with the rates that it holds. Throws Error naming the first key that is
  /// missing, unknown, of another type or for another number of groups; nothing has changed then.
  void load_state(const Json& state);

 private:
  void set_rates();

  Optimizer* optimizer_;
  Schedule schedule_;
  std::vector<double> base_lrs_;
  std::int64_t last_epoch_ = 0;
};

}  // namespace lerobot::optim
