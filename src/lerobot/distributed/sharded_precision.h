// Types of sharded training: what torch calls MixedPrecisionPolicy.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include "lerobot/config/train_config.h"

namespace lerobot::distributed {

/// An unset type leaves things as they are: parameters are gathered in their own type, gradients
/// reduced in the type in which they come, outputs returned as they are.
struct ShardedPrecision {
  std::optional<at::ScalarType> param_dtype;
  std::optional<at::ScalarType> reduce_dtype;
  std::optional<at::ScalarType> output_dtype;
  bool cast_forward_inputs = true;
};

/// --accelerator.mixed_precision=bf16 or fp16 sets all three types. A field of
/// --accelerator.fsdp.mixed_precision_policy replaces all that by the policy's own fields, where an
/// unset reduce_dtype follows param_dtype as in torch before 2.15. Throws UsageError for an unknown
/// type, a policy without param_dtype, and float16 without mixed_precision=fp16.
ShardedPrecision resolve_precision(const config::AcceleratorConfig& options);

}  // namespace lerobot::distributed
