#include "lerobot/distributed/sharded_precision.h"

#include <string>

#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

constexpr const char* kOption = "--accelerator.fsdp.mixed_precision_policy";

std::optional<at::ScalarType> type_of(const char* field, const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  std::string_view plain = *name;
  if (plain.starts_with("torch.")) plain.remove_prefix(6);
  if (plain == "float32") return at::kFloat;
  if (plain == "bfloat16") return at::kBFloat16;
  if (plain == "float16") return at::kHalf;
  fail_usage("{}.{}={} is not a type: expected float32, bfloat16 or float16", kOption, field,
             *name);
}

}  // namespace

ShardedPrecision resolve_precision(const config::AcceleratorConfig& options) {
  const auto& policy = options.fsdp.mixed_precision_policy;
  ShardedPrecision precision;
  if (!policy.param_dtype && !policy.reduce_dtype && !policy.output_dtype &&
      !policy.cast_forward_inputs) {
    if (options.mixed_precision == "bf16") precision.param_dtype = at::kBFloat16;
    if (options.mixed_precision == "fp16") precision.param_dtype = at::kHalf;
    precision.reduce_dtype = precision.output_dtype = precision.param_dtype;
    return precision;
  }
  if (!policy.param_dtype)
    fail_usage(
        "{0}.param_dtype is missing: as soon as one field is set, the policy consists of these "
        "fields alone; pass {0}.param_dtype=bfloat16 too",
        kOption);
  precision.param_dtype = type_of("param_dtype", policy.param_dtype);
  precision.reduce_dtype = type_of("reduce_dtype", policy.reduce_dtype);
  if (!precision.reduce_dtype) precision.reduce_dtype = precision.param_dtype;
  precision.output_dtype = type_of("output_dtype", policy.output_dtype);
  precision.cast_forward_inputs = policy.cast_forward_inputs.value_or(true);
  for (const auto& type : {precision.param_dtype, precision.reduce_dtype, precision.output_dtype})
    if (type == at::kHalf && options.mixed_precision != "fp16")
      fail_usage("{}: float16 needs the loss scaler: pass --accelerator.mixed_precision=fp16",
                 kOption);
  return precision;
}

}  // namespace lerobot::distributed
