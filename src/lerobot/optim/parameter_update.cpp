#include "lerobot/optim/parameter_update.h"

#include <ATen/ops/empty_like.h>

#include "lerobot/base/error.h"

namespace lerobot::optim {

bool is_flat_float(const at::Tensor& parameter) {
  return parameter.device().is_cpu() && parameter.scalar_type() == at::kFloat &&
         parameter.is_non_overlapping_and_dense();
}

at::Tensor gradient_of(const at::Tensor& parameter, bool flat) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return gradient;
  check_internal(gradient.layout() == at::kStrided, "sparse gradient");
  check_internal(gradient.sizes() == parameter.sizes(), "gradient of another shape");
  if (!flat || (gradient.strides() == parameter.strides() &&
                gradient.scalar_type() == parameter.scalar_type()))
    return gradient;
  return at::empty_like(parameter.detach()).copy_(gradient.detach());
}

double number_setting(const Json& settings, const char* key, const std::string& where) {
  const Json& value = settings.at(key);
  if (!value.is_number()) fail("{}: \"{}\" must be a number, found {}", where, key, value.dump());
  return value.get<double>();
}

bool bool_setting(const Json& settings, const char* key, const std::string& where) {
  const Json& value = settings.at(key);
  if (!value.is_boolean())
    fail("{}: \"{}\" must be true or false, found {}", where, key, value.dump());
  return value.get<bool>();
}

void require_setting(const Json& settings, const char* key, bool expected,
                     const std::string& where) {
  if (bool_setting(settings, key, where) != expected)
    fail(
        "{}: \"{}\" is {}, but this run's optimizer has {}: resume with the optimizer that wrote "
        "it",
        where, key, !expected, expected);
}

}  // namespace lerobot::optim
