#include "lerobot/optim/sgd.h"

#include <algorithm>

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"
#include "lerobot/optim/kernels.h"
#include "lerobot/optim/parameter_update.h"

namespace lerobot::optim {
namespace {

/// A float32 parameter on the CPU with all that its update needs. The tensors keep memory alive.
struct FlatUpdate {
  at::Tensor parameter, gradient;
  at::Tensor momentum_buffer;  // undefined without momentum
  SgdNumbers numbers;
};

void update_piece(const FlatUpdate& update, std::int64_t begin, std::int64_t length) {
  const at::Tensor& buffer = update.momentum_buffer;
  sgd_parameter(update.numbers, update.parameter.mutable_data_ptr<float>() + begin,
                update.gradient.const_data_ptr<float>() + begin,
                buffer.defined() ? buffer.mutable_data_ptr<float>() + begin : nullptr, length);
}

}  // namespace

Sgd::Sgd(double lr, const Settings& settings, std::vector<Group> groups)
    : Optimizer(lr,
                settings.momentum != 0 ? std::vector<StateKey>{{"momentum_buffer"}}
                                       : std::vector<StateKey>{},
                std::move(groups)),
      settings_(groups_.size(), settings) {}

void Sgd::step() {
  const c10::NoGradGuard no_grad;
  std::vector<FlatUpdate> flat_updates;
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Settings& s = settings_[g];
    const double lr = groups_[g].lr;
    for (const auto& [name, parameter] : groups_[g].parameters) {
      ParameterState& state = state_[number++];
      const bool flat = is_flat_float(parameter);
      at::Tensor gradient = gradient_of(parameter, flat);
      if (!gradient.defined()) continue;
      const bool first = s.momentum != 0 && state.empty();
      if (first) state = {at::empty_like(parameter.detach())};
      if (flat) {
        SgdNumbers numbers;
        numbers.weight_decay = static_cast<float>(s.weight_decay);
        numbers.momentum = static_cast<float>(s.momentum);
        numbers.one_minus_dampening = static_cast<float>(1 - s.dampening);
        numbers.negative_lr = static_cast<float>(-lr);
        numbers.nesterov = s.nesterov;
        numbers.first_step = first;
        flat_updates.push_back(
            {parameter, gradient, s.momentum != 0 ? state[0] : at::Tensor(), numbers});
        continue;
      }
      // torch's _single_tensor_sgd, operation by operation.
      if (s.weight_decay != 0) gradient = gradient.add(parameter, s.weight_decay);
      if (s.momentum != 0) {
        if (first)
          state[0].copy_(gradient);
        else
          state[0].mul_(s.momentum).add_(gradient, 1 - s.dampening);
        gradient = s.nesterov ? gradient.add(state[0], s.momentum) : state[0];
      }
      parameter.add_(gradient, -lr);
    }
  }
  update_in_pieces(flat_updates, loop_, update_piece);
}

Json Sgd::settings(std::size_t group) const {
  const Settings& s = settings_[group];
  return {{"momentum", s.momentum},  {"dampening", s.dampening}, {"weight_decay", s.weight_decay},
          {"nesterov", s.nesterov},  {"maximize", false},        {"foreach", nullptr},
          {"differentiable", false}, {"fused", nullptr}};
}

void Sgd::load_settings(std::size_t group, const Json& settings, const std::string& where,
                        bool apply) {
  require_setting(settings, "maximize", false, where);
  const Settings loaded{
      number_setting(settings, "momentum", where), number_setting(settings, "dampening", where),
      number_setting(settings, "weight_decay", where), bool_setting(settings, "nesterov", where)};
  if ((loaded.momentum != 0) != (settings_[group].momentum != 0))
    fail("{}: \"momentum\" is {}, but this run's optimizer has {}: resume with the same", where,
         loaded.momentum, settings_[group].momentum);
  if (apply) settings_[group] = loaded;
}

}  // namespace lerobot::optim
