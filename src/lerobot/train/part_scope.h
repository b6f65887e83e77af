// A part of a training step, as the clock counts it and as a profile shows it.
#pragma once

#include <ATen/record_function.h>

#include "lerobot/distributed/step_clock.h"

namespace lerobot::train {

/// While it lives, the time is `part`'s (behind it, kOther's), and under a profiler a span of that
/// name is open. For the training thread.
class PartScope {
 public:
  PartScope(distributed::StepClock& clock, distributed::StepPart part)
      : clock_(clock), span_(at::RecordScope::USER_SCOPE) {
    if (span_.isActive()) span_.before(distributed::name_of(part));
    clock_.enter(part);
  }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;
  ~PartScope() { clock_.enter(distributed::StepPart::kOther); }

 private:
  distributed::StepClock& clock_;
  at::RecordFunction span_;
};

}  // namespace lerobot::train
