// A tree of named parameters, buffers and submodules, in torch.nn.Module's naming and order.
//
// Why not torch::nn::Module: wrap units of sharded training are chosen by class name and need to act
// before and after a unit's forward; LoRA replaces a submodule in place; and its header costs every
// translation unit seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lerobot::nn {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

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
  NamedTensors named_buffers() const;
  /// Order of torch's state_dict(): per module its parameters, then its persistent buffers, then
  /// its children.
  NamedTensors state_dict() const;
  /// This module (name "") and all below it, depth first, with their dotted names.
  std::vector<std::pair<std::string, Module*>> named_modules();

  /// Dropout and batch statistics on or off, here and below.
  void train(bool on = true);
  bool is_training() const { return training_; }
  /// Moves parameters and buffers in place; the tensors stay the same objects.
  void to(at::Device device);

 protected:
  /// Registers a parameter (requires_grad on) or buffer and returns the handle to keep.
  at::Tensor register_parameter(std::string name, at::Tensor value);
  at::Tensor register_buffer(std::string name, at::Tensor value);
  template <class T>
  std::shared_ptr<T> register_module(std::string name, std::shared_ptr<T> module) {
    add_child(std::move(name), module);
    return module;
  }

 private:
  void add_child(std::string name, std::shared_ptr<Module> module);

  std::string class_name_;
  bool training_ = true;
  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
};

}  // namespace lerobot::nn
