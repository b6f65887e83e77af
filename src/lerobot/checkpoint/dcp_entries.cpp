#include "lerobot/checkpoint/dcp_entries.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/ops/zeros.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"

namespace lerobot::checkpoint {
namespace {

using distributed::LocalTensor;
using serialization::TorchList;
using serialization::TorchTuple;
using serialization::TorchValue;

/// A setting of a parameter group as torch's optimizers have it: pairs are tuples.
TorchValue setting_value(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return {};
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return json.get<std::int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::array: {
      TorchTuple tuple;
      for (const Json& item : json) tuple.items.push_back(setting_value(item));
      return tuple;
    }
    default:
      throw InternalError("a setting of an optimizer is a dictionary");
  }
}

/// The parameter's state in the way in which the parameter itself is held.
LocalTensor local_state(const optim::Optimizer::StateTensor& state, const LocalTensor& parameter) {
  LocalTensor local = parameter;
  local.tensor = state.value;
  if (state.is_scalar) {
    local.global_size.clear();
    local.first_row = 0;
    local.divided = false;
  }
  if (local.tensor.defined()) return local;
  // One zero in memory, whatever the size.
  const auto options =
      at::TensorOptions(state.is_scalar ? at::kFloat : state.parameter_value.scalar_type());
  const at::Tensor zero = at::zeros({}, options);
  local.tensor = state.is_scalar ? zero : zero.expand(parameter.tensor.sizes());
  return local;
}

}  // namespace

std::vector<LocalDcpEntry> model_entries(std::span<const LocalTensor> model) {
  std::vector<LocalDcpEntry> entries;
  for (const LocalTensor& tensor : model)
    entries.push_back({fmt::format("model.{}", tensor.name), {"model", tensor.name}, tensor});
  return entries;
}

std::vector<LocalDcpEntry> optimizer_entries(const optim::Optimizer& optimizer,
                                             std::span<const LocalTensor> model) {
  std::unordered_map<std::string_view, const LocalTensor*> parameters;
  for (const LocalTensor& tensor : model) parameters.emplace(tensor.name, &tensor);
  std::vector<LocalDcpEntry> entries;
  for (const auto& state : optimizer.state_tensors()) {
    const auto parameter = parameters.find(state.parameter);
    check_internal(parameter != parameters.end(), "an optimizer's parameter is not in the model");
    entries.push_back({fmt::format("optimizer.state.{}.{}", state.parameter, state.key),
                       {"optimizer", "state", state.parameter, state.key},
                       local_state(state, *parameter->second)});
  }
  const Json groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const auto& [key, setting] : groups[i].items()) {
      TorchValue value;
      if (key == "params") {
        TorchList names;
        for (const auto& [name, parameter] : optimizer.groups()[i].parameters)
          names.items.emplace_back(name);
        value = std::move(names);
      } else {
        value = setting_value(setting);
      }
      entries.push_back({fmt::format("optimizer.param_groups.{}.{}", i, key),
                         {"optimizer", "param_groups", static_cast<std::int64_t>(i), key},
                         std::move(value)});
    }
  }
  return entries;
}

}  // namespace lerobot::checkpoint
