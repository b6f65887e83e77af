// torch.autocast as a scope.
#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace lerobot::train {

/// The low-precision type of --accelerator.mixed_precision: "no", "bf16" or "fp16".
std::optional<at::ScalarType> autocast_dtype(const std::string& mixed_precision);

/// While it lives, operations on `device` run under autocast to `dtype` (none: as usual). The cache
/// of cast weights is dropped at its end, as at the end of torch's context manager.
class AutocastScope {
 public:
  AutocastScope(at::Device device, std::optional<at::ScalarType> dtype);
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;
  ~AutocastScope();

 private:
  at::DeviceType device_type_;
  bool active_;
  bool was_enabled_ = false;
  at::ScalarType previous_dtype_ = at::kFloat;
};

}  // namespace lerobot::train
