#include "lerobot/nn/recompute.h"

#include <utility>

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "lerobot/base/error.h"

namespace lerobot::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

using Call = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// Autocast as it was at one moment. Its cache of cast weights stays off: copies that were made
/// without gradients must not be found later by who wants some.
struct Autocast {
  at::DeviceType device;
  bool enabled;
  at::ScalarType dtype;

  explicit Autocast(at::DeviceType type)
      : device(type),
        enabled(at::autocast::is_autocast_enabled(type)),
        dtype(at::autocast::get_autocast_dtype(type)) {}
};

class AutocastAgain {
 public:
  explicit AutocastAgain(const Autocast& wanted)
      : before_(wanted.device), cached_(at::autocast::is_autocast_cache_enabled()) {
    set(wanted, false);
  }
  AutocastAgain(const AutocastAgain&) = delete;
  AutocastAgain& operator=(const AutocastAgain&) = delete;
  ~AutocastAgain() { set(before_, cached_); }

 private:
  static void set(const Autocast& state, bool cache) {
    at::autocast::set_autocast_enabled(state.device, state.enabled);
    at::autocast::set_autocast_dtype(state.device, state.dtype);
    at::autocast::set_autocast_cache_enabled(cache);
  }

  Autocast before_;
  bool cached_;
};

/// What backward needs besides tensors.
struct Again final : torch::CustomClassHolder {
  Again(Call function, Autocast state, std::vector<at::Tensor> all)
      : call(std::move(function)), autocast(state), parameters(std::move(all)) {}
  Call call;
  Autocast autocast;
  std::vector<at::Tensor> parameters;
};

class Recompute : public Function<Recompute> {
 public:
  static at::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<Again>& again,
                            at::TensorList inputs, at::TensorList /*parameters*/) {
    context->save_for_backward(inputs.vec());
    context->saved_data[kAgain] = c10::IValue::make_capsule(again);
    const AutocastAgain autocast(again->autocast);
    return again->call(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = context->saved_data[kAgain].toCapsule();
    auto& again = static_cast<Again&>(*holder);
    std::vector<at::Tensor> inputs;
    variable_list wanted;
    for (const at::Tensor& saved : context->get_saved_variables()) {
      at::Tensor input = saved.detach();
      input.set_requires_grad(saved.requires_grad());
      if (saved.requires_grad()) wanted.push_back(input);
      inputs.push_back(std::move(input));
    }
    for (const at::Tensor& parameter : again.parameters)
      if (parameter.requires_grad()) wanted.push_back(parameter);

    const c10::AutoGradMode with_gradients(true);
    at::Tensor output;
    {
      const AutocastAgain autocast(again.autocast);
      output = again.call(inputs);
    }
    const variable_list found =
        torch::autograd::grad({output}, wanted, {gradients[0]}, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    variable_list result(1 + inputs.size() + again.parameters.size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].requires_grad()) result[1 + i] = found[next++];
    for (std::size_t i = 0; i < again.parameters.size(); ++i)
      if (again.parameters[i].requires_grad()) result[1 + inputs.size() + i] = found[next++];
    return result;
  }

 private:
  static constexpr const char* kAgain = "again";
};

}  // namespace

at::Tensor recompute_in_backward(const Module& module, std::vector<at::Tensor> inputs, Call call) {
  if (!c10::GradMode::is_enabled()) return call(inputs);
  check_internal(!inputs.empty(), "a recomputed part without inputs");
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : module.named_parameters()) parameters.push_back(parameter);
  const auto again = c10::make_intrusive<Again>(
      std::move(call), Autocast(inputs.front().device().type()), parameters);
  // As lists, not vectors: only those does autograd look into.
  return Recompute::apply(again, at::TensorList(inputs), at::TensorList(parameters));
}

}  // namespace lerobot::nn
