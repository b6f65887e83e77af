// A tree of named parameters, buffers and submodules, in torch.nn.Module's naming and order.
//
// Why not torch::nn::Module: wrap units of sharded training are chosen by class name and need to
// act before and after a unit's forward; LoRA replaces a submodule in place; and its header costs
// every translation unit seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lerobot::nn {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Whether a forward in training mode changes a buffer (running statistics) or never does (tables).
enum class BufferKind { kFixed, kRunning };

/// What sharded training does around every call of a module (distributed/sharded_unit.h).
class ForwardHooks {
 public:
  virtual ~ForwardHooks() = default;
  virtual void before_forward() = 0;
  /// A tensor argument of the call, as forward() shall see it. The same tensor gives the same
  /// result within a call.
  virtual at::Tensor input(const at::Tensor& argument) = 0;
  /// A tensor of the result, as the caller shall see it.
  virtual at::Tensor output(const at::Tensor& result) = 0;
  virtual void after_forward() = 0;
};

class Module {
 public:
  /// `class_name` is the Python class's name ("ACTEncoderLayer"): wrap units are chosen by it.
  explicit Module(std::string class_name);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  const std::string& class_name() const { return class_name_; }

  /// A module's own parameters first, then its children's, each in the order of registration:
  /// the order of named_parameters() in torch. Tensors are handles: writing through them changes
  /// the module.
  NamedTensors named_parameters() const;
  /// Those that an optimizer changes: requires_grad.
  NamedTensors trainable_parameters() const;
  NamedTensors named_buffers() const;
  /// The buffers of kind kRunning, here and below.
  std::vector<at::Tensor> running_buffers() const;
  /// Order of torch's state_dict(): per module its parameters, then its persistent buffers, then
  /// its children.
  NamedTensors state_dict() const;
  /// This module's own, without its children's.
  const NamedTensors& own_parameters() const { return parameters_; }
  /// This module (name "") and all below it, depth first, with their dotted names.
  std::vector<std::pair<std::string, Module*>> named_modules();

  /// Dropout and batch statistics on or off, here and below.
  void train(bool on = true);
  bool is_training() const { return training_; }
  /// Whether it has a forward of its own, around which hooks can be put.
  virtual bool is_callable() const { return false; }
  /// Hooks for every later call; null takes them away. They must outlive the calls.
  void set_forward_hooks(ForwardHooks* hooks) { forward_hooks_ = hooks; }

  /// Moves parameters and buffers in place; the tensors stay the same objects.
  void to(at::Device device);

  /// Puts `prefix` and a dot before the names of all that is registered here so far. That is how
  /// peft's names come about, whose wrappers ("base_layer", "modules_to_save.default",
  /// "base_model.model") stand between a module and what it had.
  void prefix_names(std::string_view prefix);
  /// Registers an adapter's two layers (nn/lora.h) beside what is here, which becomes its
  /// "base_layer", and moves them to `device`.
  void take_in_lora(std::shared_ptr<Module> a, std::shared_ptr<Module> b, at::Device device);

 protected:
  ForwardHooks* forward_hooks() const { return forward_hooks_; }
  /// Registers a parameter (requires_grad on) or buffer and returns the handle to keep. A name is
  /// used once and has no dot.
  at::Tensor register_parameter(std::string name, at::Tensor value);
  at::Tensor register_buffer(std::string name, at::Tensor value,
                             BufferKind kind = BufferKind::kFixed);
  template <class T>
  std::shared_ptr<T> register_module(const std::string& name, std::shared_ptr<T> module) {
    add_child(name, module);
    return module;
  }

 private:
  void add_child(std::string name, std::shared_ptr<Module> module);

  std::string class_name_;
  bool training_ = true;
  ForwardHooks* forward_hooks_ = nullptr;
  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<at::Tensor> running_buffers_;  // those of buffers_ that training changes
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
};

/// A module that can be called: every call of a layer goes through operator(), never to forward()
/// directly, so that there is one place around a module's forward.
///
/// Hooks see arguments that are tensors, and results that are tensors or have a member
/// `for_each_tensor(f)` that calls f(at::Tensor&) on each of theirs.
template <class Derived>
class Callable : public Module {
 public:
  using Module::Module;

  bool is_callable() const final { return true; }

  template <class... Args>
  auto operator()(Args&&... args) {
    auto& self = static_cast<Derived&>(*this);
    ForwardHooks* const hooks = forward_hooks();
    if (hooks == nullptr) return self.forward(std::forward<Args>(args)...);
    hooks->before_forward();
    auto result = self.forward(hooked_input(*hooks, std::forward<Args>(args))...);
    const auto hook_output = [&](at::Tensor& tensor) {
      if (tensor.defined()) tensor = hooks->output(tensor);
    };
    if constexpr (std::is_same_v<decltype(result), at::Tensor>)
      hook_output(result);
    else
      result.for_each_tensor(hook_output);
    hooks->after_forward();
    return result;
  }

 private:
  template <class T>
  static decltype(auto) hooked_input(ForwardHooks& hooks, T&& argument) {
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>)
      return argument.defined() ? hooks.input(argument) : at::Tensor();
    else
      return std::forward<T>(argument);
  }
};

/// Submodules of one type, named "0", "1", ... (torch.nn.ModuleList and Sequential).
template <class T>
class ModuleList final : public Module {
 public:
  explicit ModuleList(std::string class_name = "ModuleList") : Module(std::move(class_name)) {}

  void push_back(std::shared_ptr<T> module) {
    items_.push_back(register_module(std::to_string(items_.size()), std::move(module)));
  }
  std::size_t size() const { return items_.size(); }
  T& operator[](std::size_t i) const { return *items_[i]; }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<std::shared_ptr<T>> items_;
};

}  // namespace lerobot::nn
