#include "lerobot/processor/steps.h"

#include <array>
#include <utility>

#include <c10/util/Exception.h>

#include "lerobot/base/error.h"

namespace lerobot::processor {
namespace {

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 7> kFloatTypes{{
    {"float16", at::kHalf},
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"bfloat16", at::kBFloat16},
    {"half", at::kHalf},
    {"float", at::kFloat},
    {"double", at::kDouble},
}};

}  // namespace

at::Device device_of(const std::string& name) {
  try {
    return at::Device(name);
  } catch (const c10::Error&) {
    fail("unknown device \"{}\": expected cpu, cuda or cuda:<number>", name);
  }
}

// --- Rename
// ---------------------------------------------------------------------------------------

Json RenameStep::config() const {
  Json names = Json::object();
  for (const auto& [from, to] : names_) names[from] = to;
  return {{"rename_map", names}};
}

void RenameStep::apply(dataset::Batch& batch) const {
  if (names_.empty()) return;
  decltype(batch.tensors) renamed;
  for (auto& [key, value] : batch.tensors) {
    const auto found = key.starts_with("observation") ? names_.find(key) : names_.end();
    const std::string& name = found == names_.end() ? key : found->second;
    if (!renamed.emplace(name, std::move(value)).second)
      fail("rename_map: two observations would be called {}", name);
  }
  batch.tensors = std::move(renamed);
}

// --- Batch dimension
// ------------------------------------------------------------------------------

void ToBatchStep::apply(dataset::Batch& batch) const {
  for (auto& [key, value] : batch.tensors) {
    const bool vector =
        key == "observation.state" || key == "observation.environment_state" || key == "action";
    const bool image = key == "observation.image" || key.starts_with("observation.images.");
    const bool scalar = key == "index" || key == "task_index";
    const std::int64_t single = vector ? 1 : image ? 3 : 0;
    if ((vector || image || scalar) && value.dim() == single) value = value.unsqueeze(0);
  }
}

// --- Device
// ---------------------------------------------------------------------------------------

DeviceStep::DeviceStep(const std::string& device, std::optional<std::string> float_type)
    : device_(device_of(device)), float_type_(std::move(float_type)) {
  if (!float_type_) return;
  for (const auto& [name, type] : kFloatTypes)
    if (name == *float_type_) type_ = type;
  if (!type_)
    fail(
        "device_processor: unknown float_dtype \"{}\": expected float16, bfloat16, float32 or "
        "float64",
        *float_type_);
}

Json DeviceStep::config() const {
  Json json;
  json["device"] = c10::DeviceTypeName(device_.type(), /*lower_case=*/true);
  json["float_dtype"] = float_type_ ? Json(*float_type_) : Json();
  return json;
}

void DeviceStep::apply(dataset::Batch& batch) const {
  for (auto& [key, value] : batch.tensors) {
    const bool stays = value.is_cuda() && device_.is_cuda();
    if (!stays && value.device() != device_)
      value = value.to(device_, value.scalar_type(), /*non_blocking=*/device_.is_cuda());
    if (type_ && value.is_floating_point()) value = value.to(*type_);
  }
}

}  // namespace lerobot::processor
