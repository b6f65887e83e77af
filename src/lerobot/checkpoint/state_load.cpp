#include "lerobot/checkpoint/state_load.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"

namespace lerobot::checkpoint {
namespace {

using distributed::LocalTensor;
using StateTensor = optim::Optimizer::StateTensor;

bool is_floating(at::ScalarType type) { return c10::isFloatingType(type); }

void check_shape(const StateSource& source, const std::string& name,
                 const std::vector<std::int64_t>& expected) {
  if (const auto shape = source.shape(name); shape != expected)
    fail("{}: {} has the shape {}, expected {}: was it written by another policy?", source.where(),
         name, shape, expected);
}

void check_target(const LocalTensor& target, const StateSource& source) {
  if (!source.contains(target.name))
    fail("{}: lacks {}: was it written by another policy?", source.where(), target.name);
  check_shape(source, target.name, target.global_size);
  const at::ScalarType saved = source.dtype(target.name);
  const at::ScalarType wanted = target.tensor.scalar_type();
  if (saved != wanted && !(is_floating(saved) && is_floating(wanted)))
    fail("{}: {} is of the dtype {}, expected {}", source.where(), target.name,
         c10::toString(saved), c10::toString(wanted));
}

using Parameters = std::unordered_map<std::string_view, const LocalTensor*>;

std::string state_key(const StateTensor& state) {
  return fmt::format("{}.{}", state.parameter, state.key);
}

/// Which state tensors are to be read. Throws Error for a parameter of which a part is missing, and
/// for what no parameter of this run has.
std::vector<const StateTensor*> saved_states(const std::vector<StateTensor>& states,
                                             const Parameters& parameters,
                                             const StateSource& source) {
  std::unordered_set<std::size_t> stepped;
  for (const StateTensor& state : states)
    if (source.contains(state_key(state))) stepped.insert(state.number);
  std::vector<const StateTensor*> wanted;
  for (const StateTensor& state : states) {
    if (!stepped.contains(state.number)) continue;
    const std::string name = state_key(state);
    if (!source.contains(name)) fail("{}: lacks {}", source.where(), name);
    const auto parameter = parameters.find(state.parameter);
    check_internal(parameter != parameters.end(), "an optimizer's parameter is not in the model");
    check_shape(source, name,
                state.is_scalar ? std::vector<std::int64_t>{} : parameter->second->global_size);
    if (!is_floating(source.dtype(name)))
      fail("{}: {} must be floating-point, found {}", source.where(), name,
           c10::toString(source.dtype(name)));
    wanted.push_back(&state);
  }
  if (wanted.size() == source.names().size()) return wanted;
  std::unordered_set<std::string> known;
  for (const StateTensor* state : wanted) known.insert(state_key(*state));
  for (const std::string& name : source.names())
    if (!known.contains(name))
      fail("{}: holds {}, which this run's optimizer has not: was it written by another one?",
           source.where(), name);
  throw InternalError("an optimizer's state has two tensors of one name");
}

}  // namespace

std::vector<std::string> load_model(std::span<const LocalTensor> model, const StateSource& source) {
  std::unordered_set<std::string_view> known;
  for (const LocalTensor& target : model) {
    check_target(target, source);
    known.insert(target.name);
  }
  const c10::NoGradGuard no_grad;
  for (const LocalTensor& target : model) source.read(target.name, target.first_row, target.tensor);
  std::vector<std::string> unexpected;
  for (const std::string& name : source.names())
    if (!known.contains(name)) unexpected.push_back(name);
  return unexpected;
}

void warn_about_unexpected(const std::vector<std::string>& names, const std::string& where) {
  constexpr std::size_t kShown = 5;
  if (names.empty()) return;
  const std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  log::warning("{} holds {} tensors that the model has not; they are ignored: {}{}", where,
               names.size(), fmt::join(shown, ", "), names.size() > kShown ? ", ..." : "");
}

std::vector<std::vector<std::string>> parameter_names(const optim::Optimizer& optimizer) {
  std::vector<std::vector<std::string>> names;
  for (const optim::Group& group : optimizer.groups()) {
    auto& of_group = names.emplace_back();
    for (const auto& [name, parameter] : group.parameters) of_group.push_back(name);
  }
  return names;
}

void load_optimizer(optim::Optimizer& optimizer, std::span<const LocalTensor> model,
                    const OptimizerSource& source) {
  Parameters parameters;
  for (const LocalTensor& tensor : model) parameters.emplace(tensor.name, &tensor);
  const StateSource& saved = *source.state;
  const std::vector<StateTensor> states = optimizer.state_tensors();
  const auto wanted = saved_states(states, parameters, saved);

  serialization::NamedTensors local;
  for (const StateTensor* state : wanted) {
    const std::string name = state_key(*state);
    const LocalTensor& parameter = *parameters.find(state->parameter)->second;
    const at::IntArrayRef size =
        state->is_scalar ? at::IntArrayRef{} : state->parameter_value.sizes();
    const at::Tensor part = at::empty(size, at::TensorOptions(saved.dtype(name)));
    saved.read(name, state->is_scalar ? 0 : parameter.first_row, part);
    local.emplace_back(optim::Optimizer::state_name(state->number, state->key), part);
  }
  // The settings are checked as a whole before any is taken over, and the state is sound by now.
  optimizer.load_param_groups(source.groups, source.groups_where);
  optimizer.load_state(std::move(local));
}

}  // namespace lerobot::checkpoint
