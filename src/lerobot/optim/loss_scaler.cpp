#include "lerobot/optim/loss_scaler.h"

#include <map>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "lerobot/base/error.h"

namespace lerobot::optim {
namespace {

const Json& entry(const Json& state, const char* key) {
  if (!state.is_object() || !state.contains(key))
    fail("the loss scaler's state has no \"{}\"", key);
  return state[key];
}

double number(const Json& state, const char* key) {
  const Json& value = entry(state, key);
  if (!value.is_number())
    fail("the loss scaler's \"{}\": expected a number, found {}", key, value.dump());
  return value.get<double>();
}

std::int64_t integer(const Json& state, const char* key, std::int64_t least) {
  const Json& value = entry(state, key);
  if (!value.is_number_integer() || value.get<std::int64_t>() < least)
    fail("the loss scaler's \"{}\": expected an integer at least {}, found {}", key, least,
         value.dump());
  return value.get<std::int64_t>();
}

}  // namespace

LossScaler::LossScaler(const config::GradScalerConfig& config, at::Device device)
    : scale_(at::full({}, config.init_scale, at::TensorOptions(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions(at::kInt).device(device))),
      found_overflow_(at::zeros({1}, at::TensorOptions(at::kFloat).device(device))),
      growth_factor_(config.growth_factor),
      backoff_factor_(config.backoff_factor),
      growth_interval_(config.growth_interval) {}

at::Tensor LossScaler::scale_loss(const at::Tensor& loss) const { return loss * scale_; }

void LossScaler::unscale(const nn::NamedTensors& parameters) {
  const at::NoGradGuard no_grad;
  found_overflow_.zero_();
  // The reciprocal in double, as torch has it: of a power of two it is exact in any case.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  // torch's operation takes tensors of one device and one type at a time.
  std::map<std::pair<at::DeviceIndex, at::ScalarType>, std::vector<at::Tensor>> alike;
  for (const auto& [name, parameter] : parameters)
    if (parameter.grad().defined())
      alike[{parameter.grad().device().index(), parameter.grad().scalar_type()}].push_back(
          parameter.grad().detach());
  for (auto& [kind, gradients] : alike) {
    // With --accelerator.fsdp.cpu_offload the gradients are elsewhere than the loss.
    const at::Device device = gradients.front().device();
    at::Tensor found = found_overflow_.to(device);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse.to(device));
    if (!found.is_same(found_overflow_)) found_overflow_.copy_(found);
  }
}

bool LossScaler::skips_update() const { return found_overflow_.item().toDouble() != 0; }

void LossScaler::update() {
  const at::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_tracker_, found_overflow_, growth_factor_, backoff_factor_,
                         growth_interval_);
}

double LossScaler::scale() const { return scale_.item().toDouble(); }

Json LossScaler::state() const {
  return {{"scale", scale()},
          {"growth_factor", growth_factor_},
          {"backoff_factor", backoff_factor_},
          {"growth_interval", growth_interval_},
          {"_growth_tracker", growth_tracker_.item().toLong()}};
}

void LossScaler::load_state(const Json& state) {
  const double scale = number(state, "scale"), growth = number(state, "growth_factor"),
               backoff = number(state, "backoff_factor");
  const std::int64_t interval = integer(state, "growth_interval", 1),
                     tracker = integer(state, "_growth_tracker", 0);
  if (!(scale > 0)) fail("the loss scaler's \"scale\": expected a number above 0, found {}", scale);
  if (!(growth > 1))
    fail("the loss scaler's \"growth_factor\": expected a number above 1, found {}", growth);
  if (!(backoff > 0 && backoff < 1))
    fail("the loss scaler's \"backoff_factor\": expected a number between 0 and 1, found {}",
         backoff);
  scale_.fill_(scale);
  growth_tracker_.fill_(tracker);
  growth_factor_ = growth;
  backoff_factor_ = backoff;
  growth_interval_ = interval;
}

}  // namespace lerobot::optim
