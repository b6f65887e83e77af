#include "lerobot/optim/adam.h"

#include <array>
#include <cmath>
#include <map>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"
#include "lerobot/optim/kernels.h"
#include "lerobot/optim/parameter_update.h"
#include "lerobot/optim/square_roots.h"

namespace lerobot::optim {
namespace {

enum StateIndex : std::size_t { kStep, kExpAvg, kExpAvgSq };

/// What an update multiplies with at one step, in double as Python computes it.
struct Scalars {
  double step_size;
  double denominator_scale;
};

Scalars scalars_at(double lr, const Adam::Settings& s, double step) {
  const double correction1 = 1 - std::pow(s.beta1, step);
  const double correction2 = 1 - std::pow(s.beta2, step);
  return {lr / correction1, std::pow(correction2, 0.5)};
}

/// A float32 parameter on the CPU with all that its update needs. The tensors keep memory alive.
struct FlatUpdate {
  at::Tensor parameter, gradient, exp_avg, exp_avg_sq;
  AdamNumbers numbers;
};

void update_piece(const FlatUpdate& update, std::int64_t begin, std::int64_t length) {
  float* const parameter = update.parameter.mutable_data_ptr<float>() + begin;
  float* const exp_avg = update.exp_avg.mutable_data_ptr<float>() + begin;
  alignas(64) std::array<float, kPieceLength> roots;
  adam_moments(update.numbers, parameter, update.gradient.const_data_ptr<float>() + begin, exp_avg,
               update.exp_avg_sq.mutable_data_ptr<float>() + begin, roots.data(), length);
  take_square_roots(roots.data(), length);
  adam_parameter(update.numbers, parameter, exp_avg, roots.data(), length);
}

/// torch's _single_tensor_adam, operation by operation, for types that the loops do not serve.
void update_plain(const at::Tensor& parameter, at::Tensor gradient, const at::Tensor& exp_avg,
                  const at::Tensor& exp_avg_sq, const Adam::Settings& s, bool decoupled, double lr,
                  const Scalars& scalars) {
  if (s.weight_decay != 0) {
    if (decoupled)
      parameter.mul_(1 - lr * s.weight_decay);
    else
      gradient = gradient.add(parameter, s.weight_decay);
  }
  exp_avg.lerp_(gradient, 1 - s.beta1);
  exp_avg_sq.mul_(s.beta2).addcmul_(gradient, gradient, 1 - s.beta2);
  const at::Tensor denominator = exp_avg_sq.sqrt().div_(scalars.denominator_scale).add_(s.eps);
  parameter.addcdiv_(exp_avg, denominator, -scalars.step_size);
}

/// Parameters of one device and type, for torch's fused kernels.
struct FusedLists {
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, steps;
};

void update_fused(FusedLists& lists, const Adam::Settings& s, bool decoupled, double lr) {
  at::_foreach_add_(lists.steps, 1);
  const auto update =
      decoupled
          ? static_cast<decltype(&at::_ops::_fused_adamw_::call)>(&at::_ops::_fused_adamw_::call)
          : static_cast<decltype(&at::_ops::_fused_adam_::call)>(&at::_ops::_fused_adam_::call);
  update(lists.parameters, lists.gradients, lists.exp_avgs, lists.exp_avg_sqs, {}, lists.steps, lr,
         s.beta1, s.beta2, s.weight_decay, s.eps, /*amsgrad=*/false, /*maximize=*/false,
         /*grad_scale=*/{}, /*found_inf=*/{});
}

}  // namespace

Adam::Adam(double lr, const Settings& settings, bool decoupled_weight_decay,
           std::vector<Group> groups)
    : Optimizer(lr, {{"step", true}, {"exp_avg"}, {"exp_avg_sq"}}, std::move(groups)),
      settings_(groups_.size(), settings),
      decoupled_(decoupled_weight_decay) {}

void Adam::step() {
  const c10::NoGradGuard no_grad;
  std::vector<FlatUpdate> flat_updates;
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Settings& s = settings_[g];
    const double lr = groups_[g].lr;
    std::map<std::pair<at::DeviceIndex, at::ScalarType>, FusedLists> fused;
    for (const auto& [name, parameter] : groups_[g].parameters) {
      ParameterState& state = state_[number++];
      const bool flat = is_flat_float(parameter);
      const at::Tensor gradient = gradient_of(parameter, flat);
      if (!gradient.defined()) continue;
      if (state.empty()) {
        const auto scalar = at::TensorOptions().dtype(at::kFloat).device(parameter.device());
        state = {at::zeros({}, scalar), at::zeros_like(parameter.detach()),
                 at::zeros_like(parameter.detach())};
      }
      if (!parameter.device().is_cpu()) {
        FusedLists& lists = fused[{parameter.device().index(), parameter.scalar_type()}];
        lists.parameters.push_back(parameter);
        lists.gradients.push_back(gradient);
        lists.exp_avgs.push_back(state[kExpAvg]);
        lists.exp_avg_sqs.push_back(state[kExpAvgSq]);
        lists.steps.push_back(state[kStep]);
        continue;
      }
      float& step = *state[kStep].mutable_data_ptr<float>();
      step += 1.0f;
      const Scalars scalars = scalars_at(lr, s, step);
      if (!flat) {
        update_plain(parameter, gradient, state[kExpAvg], state[kExpAvgSq], s, decoupled_, lr,
                     scalars);
        continue;
      }
      AdamNumbers numbers;
      numbers.decoupled_weight_decay = decoupled_;
      numbers.weight_decay = static_cast<float>(s.weight_decay);
      numbers.keep =
          decoupled_ && s.weight_decay != 0 ? static_cast<float>(1 - lr * s.weight_decay) : 1.0f;
      numbers.one_minus_beta1 = static_cast<float>(1 - s.beta1);
      numbers.beta2 = static_cast<float>(s.beta2);
      numbers.one_minus_beta2 = static_cast<float>(1 - s.beta2);
      numbers.denominator_scale = static_cast<float>(scalars.denominator_scale);
      numbers.eps = static_cast<float>(s.eps);
      numbers.negative_step_size = static_cast<float>(-scalars.step_size);
      flat_updates.push_back({parameter, gradient, state[kExpAvg], state[kExpAvgSq], numbers});
    }
    for (auto& [kind, lists] : fused) update_fused(lists, s, decoupled_, lr);
  }
  update_in_pieces(flat_updates, loop_, update_piece);
}

Json Adam::settings(std::size_t group) const {
  const Settings& s = settings_[group];
  return {{"betas", {s.beta1, s.beta2}},
          {"eps", s.eps},
          {"weight_decay", s.weight_decay},
          {"amsgrad", false},
          {"maximize", false},
          {"foreach", nullptr},
          {"capturable", false},
          {"differentiable", false},
          {"fused", nullptr},
          {"decoupled_weight_decay", decoupled_}};
}

void Adam::load_settings(std::size_t group, const Json& settings, const std::string& where,
                         bool apply) {
  const Json& betas = settings["betas"];
  if (!betas.is_array() || betas.size() != 2 || !betas[0].is_number() || !betas[1].is_number())
    fail("{}: \"betas\" must be two numbers, found {}", where, betas.dump());
  require_setting(settings, "amsgrad", false, where);
  require_setting(settings, "maximize", false, where);
  require_setting(settings, "decoupled_weight_decay", decoupled_, where);
  const Settings loaded{betas[0].get<double>(), betas[1].get<double>(),
                        number_setting(settings, "eps", where),
                        number_setting(settings, "weight_decay", where)};
  if (apply) settings_[group] = loaded;
}

}  // namespace lerobot::optim
