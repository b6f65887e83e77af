#include "lerobot/optim/ema.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"
#include "lerobot/optim/kernels.h"
#include "lerobot/optim/parameter_update.h"

namespace lerobot::optim {
namespace {

void require_option(bool condition, const char* option, const char* expected, double found) {
  if (!condition) fail_usage("ema.{} must be {}, found {}", option, expected, found);
}

bool in_unit_range(double value) { return value >= 0.0 && value <= 1.0; }

}  // namespace

ExponentialMovingAverage::ExponentialMovingAverage(const config::EmaConfig& config,
                                                   nn::NamedTensors parameters)
    : parameters_(std::move(parameters)) {
  if (config.decay)
    require_option(in_unit_range(*config.decay), "decay", "from 0 to 1", *config.decay);
  require_option(in_unit_range(config.max_decay), "max_decay", "from 0 to 1", config.max_decay);
  require_option(config.min_decay >= 0.0 && config.min_decay <= config.max_decay, "min_decay",
                 "from 0 to ema.max_decay", config.min_decay);
  require_option(config.inv_gamma > 0.0, "inv_gamma", "above 0", config.inv_gamma);
  require_option(std::isfinite(config.power), "power", "finite", config.power);
  require_option(config.update_after_step >= 0, "update_after_step", "at least 0",
                 static_cast<double>(config.update_after_step));
  state_.decay = config.decay.value_or(config.max_decay);
  state_.min_decay = config.decay.value_or(config.min_decay);
  state_.update_after_step = config.update_after_step;
  state_.inv_gamma = config.inv_gamma;
  state_.power = config.power;
  for (const auto& [name, parameter] : parameters_)
    state_.shadow_params.push_back(parameter.detach().clone());
}

double ExponentialMovingAverage::decay_at(std::int64_t update) const {
  const std::int64_t step = std::max<std::int64_t>(0, update - state_.update_after_step - 1);
  if (step <= 0) return 0.0;
  const double t = static_cast<double>(step);
  const double decay = state_.use_ema_warmup
                           ? 1.0 - std::pow(1.0 + t / state_.inv_gamma, -state_.power)
                           : (1.0 + t) / (10.0 + t);
  return std::max(std::min(decay, state_.decay), state_.min_decay);
}

void ExponentialMovingAverage::update() {
  const c10::NoGradGuard no_grad;
  const double rate = 1.0 - decay_at(++state_.optimization_step);
  std::vector<std::size_t> flat;  // numbers of the parameters that the loop serves
  std::vector<std::int64_t> lengths;
  std::vector<at::Tensor> device_shadows, device_parameters;
  for (std::size_t n = 0; n < parameters_.size(); ++n) {
    const at::Tensor& parameter = parameters_[n].second;
    const at::Tensor& shadow = state_.shadow_params[n];
    if (!parameter.requires_grad()) {
      shadow.copy_(parameter);
    } else if (is_flat_float(parameter) && shadow.strides() == parameter.strides()) {
      flat.push_back(n);
      lengths.push_back(parameter.numel());
    } else if (!parameter.device().is_cpu()) {
      device_shadows.push_back(shadow);
      device_parameters.push_back(parameter);
    } else {
      shadow.sub_(shadow.sub(parameter).mul_(rate));
    }
  }
  // One launch for all, where diffusers has three for each.
  if (!device_shadows.empty()) at::_foreach_lerp_(device_shadows, device_parameters, rate);
  for_each_piece(lengths, loop_, [&](std::size_t entry, std::int64_t begin, std::int64_t length) {
    const std::size_t n = flat[entry];
    approach(static_cast<float>(rate), state_.shadow_params[n].mutable_data_ptr<float>() + begin,
             parameters_[n].second.const_data_ptr<float>() + begin, length);
  });
}

nn::NamedTensors ExponentialMovingAverage::shadow() const {
  nn::NamedTensors named;
  for (std::size_t n = 0; n < parameters_.size(); ++n)
    named.emplace_back(parameters_[n].first, state_.shadow_params[n]);
  return named;
}

void ExponentialMovingAverage::load_state(const EmaState& state) {
  constexpr const char* kFile = "ema_state.pt";
  if (state.shadow_params.size() != parameters_.size())
    fail("{}: \"shadow_params\" must hold {} tensors, found {}", kFile, parameters_.size(),
         state.shadow_params.size());
  for (std::size_t n = 0; n < parameters_.size(); ++n) {
    const auto& [name, parameter] = parameters_[n];
    if (state.shadow_params[n].sizes() != parameter.sizes())
      fail("{}: entry {} of \"shadow_params\" must have the shape {} of {}, found {}", kFile, n,
           fmt::streamed(parameter.sizes()), name, fmt::streamed(state.shadow_params[n].sizes()));
  }
  if (!in_unit_range(state.decay) || !in_unit_range(state.min_decay))
    fail("{}: decay and min_decay must be from 0 to 1, found {} and {}", kFile, state.decay,
         state.min_decay);
  if (state.optimization_step < 0 || state.update_after_step < 0)
    fail("{}: steps must not be negative, found {} and {}", kFile, state.optimization_step,
         state.update_after_step);
  if (!(state.inv_gamma > 0))
    fail("{}: inv_gamma must be above 0, found {}", kFile, state.inv_gamma);

  const std::vector<at::Tensor> shadow = state_.shadow_params;
  for (std::size_t n = 0; n < shadow.size(); ++n) shadow[n].copy_(state.shadow_params[n]);
  state_ = state;
  state_.shadow_params = shadow;
}

}  // namespace lerobot::optim
