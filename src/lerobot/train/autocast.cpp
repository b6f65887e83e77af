#include "lerobot/train/autocast.h"

#include <ATen/autocast_mode.h>

namespace lerobot::train {

std::optional<at::ScalarType> autocast_dtype(const std::string& mixed_precision) {
  if (mixed_precision == "bf16") return at::kBFloat16;
  if (mixed_precision == "fp16") return at::kHalf;
  return std::nullopt;
}

AutocastScope::AutocastScope(at::Device device, std::optional<at::ScalarType> dtype)
    : device_type_(device.type()), active_(dtype.has_value()) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_type_);
  previous_dtype_ = at::autocast::get_autocast_dtype(device_type_);
  at::autocast::set_autocast_enabled(device_type_, true);
  at::autocast::set_autocast_dtype(device_type_, *dtype);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_type_, was_enabled_);
  at::autocast::set_autocast_dtype(device_type_, previous_dtype_);
}

}  // namespace lerobot::train
