#include "lerobot/train/stop_agreement.h"

#include <ATen/ops/full.h>

#include "lerobot/base/interrupt.h"

namespace lerobot::train {

void StopAgreement::begin_step() {
  if (ranks_.size() == 1) return;
  signal_ = at::full({1}, InterruptGuard::received(), at::kInt);
  exchange_ = ranks_.all_reduce(signal_, distributed::Reduction::kMax);
}

int StopAgreement::end_step() {
  if (ranks_.size() == 1) return InterruptGuard::received();
  exchange_.wait();
  return signal_.item().toInt();
}

}  // namespace lerobot::train
