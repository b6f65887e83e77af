// Loss scaling for fp16: the arithmetic of torch.amp.GradScaler.
//
// The loss is multiplied by `scale` before backward, so that small gradients do not vanish in
// float16; the gradients are divided by it before they are used. A gradient that is not finite
// skips the update and lowers the scale; growth_interval updates without one raise it.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "lerobot/base/json.h"
#include "lerobot/config/train_config.h"
#include "lerobot/nn/module.h"

namespace lerobot::optim {

/// Used from one thread at a time. Its numbers live on the device; only skips_update(), scale() and
/// state() wait for it.
class LossScaler {
 public:
  LossScaler(const config::GradScalerConfig& config, at::Device device);

  /// loss * scale, to call backward on.
  at::Tensor scale_loss(const at::Tensor& loss) const;
  /// Divides all gradients by the scale, in place, and looks whether all are finite. Once an
  /// update.
  void unscale(const nn::NamedTensors& parameters);
  /// 1 after unscale() met a gradient that is not finite, else 0: float32 [1]. Ranks that hold
  /// different gradients reduce it to the maximum before skips_update() and update().
  at::Tensor& found_overflow() { return found_overflow_; }
  /// Whether the optimizer must leave this update out.
  bool skips_update() const;
  /// Lowers or raises the scale for the next update. After every unscale().
  void update();

  double scale() const;

  /// scaler_state.json: the state_dict() of torch's GradScaler.
  Json state() const;
  /// Goes on from state(). Throws Error naming the key that is missing or of another type, or whose
  /// value is out of range; nothing has changed then.
  void load_state(const Json& state);

 private:
  at::Tensor scale_;           // float32 []
  at::Tensor growth_tracker_;  // int32 []: updates without overflow since the scale changed
  at::Tensor found_overflow_;  // float32 [1]
  double growth_factor_;
  double backoff_factor_;
  std::int64_t growth_interval_;
};

}  // namespace lerobot::optim
