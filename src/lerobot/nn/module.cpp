#include "lerobot/nn/module.h"

#include <algorithm>

#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"

namespace lerobot::nn {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void append(NamedTensors& to, const std::string& prefix, const NamedTensors& from) {
  for (const auto& [name, tensor] : from) to.emplace_back(joined(prefix, name), tensor);
}

}  // namespace

Module::Module(std::string class_name) : class_name_(std::move(class_name)) {}

NamedTensors Module::named_parameters() const {
  NamedTensors all = parameters_;
  for (const auto& [name, child] : children_) append(all, name, child->named_parameters());
  return all;
}

NamedTensors Module::trainable_parameters() const {
  NamedTensors trainable = named_parameters();
  std::erase_if(trainable, [](const auto& entry) { return !entry.second.requires_grad(); });
  return trainable;
}

NamedTensors Module::named_buffers() const {
  NamedTensors all = buffers_;
  for (const auto& [name, child] : children_) append(all, name, child->named_buffers());
  return all;
}

std::vector<at::Tensor> Module::running_buffers() const {
  std::vector<at::Tensor> all = running_buffers_;
  for (const auto& [name, child] : children_) {
    const auto below = child->running_buffers();
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

NamedTensors Module::state_dict() const {
  NamedTensors all = parameters_;
  all.insert(all.end(), buffers_.begin(), buffers_.end());
  for (const auto& [name, child] : children_) append(all, name, child->state_dict());
  return all;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all{{"", this}};
  for (const auto& [name, child] : children_) {
    for (auto& [below, module] : child->named_modules())
      all.emplace_back(below.empty() ? name : joined(name, below), module);
  }
  return all;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
}

void Module::to(at::Device device) {
  c10::AutoGradMode no_grad(false);
  for (auto* tensors : {&parameters_, &buffers_}) {
    for (auto& [name, tensor] : *tensors) {
      if (tensor.device() == device) continue;
      tensor.set_data(tensor.to(device));
      if (tensor.grad().defined()) tensor.mutable_grad().set_data(tensor.grad().to(device));
    }
  }
  for (const auto& [name, child] : children_) child->to(device);
}

void Module::prefix_names(std::string_view prefix) {
  const auto prefixed = [&](const std::string& name) { return joined(std::string(prefix), name); };
  for (auto* tensors : {&parameters_, &buffers_})
    for (auto& [name, tensor] : *tensors) name = prefixed(name);
  for (auto& [name, child] : children_) name = prefixed(name);
}

void Module::take_in_lora(std::shared_ptr<Module> a, std::shared_ptr<Module> b, at::Device device) {
  prefix_names("base_layer");
  for (const auto& layer : {a, b}) layer->to(device);
  add_child("lora_A.default", std::move(a));
  add_child("lora_B.default", std::move(b));
}

at::Tensor Module::register_parameter(std::string name, at::Tensor value) {
  value.set_requires_grad(true);
  parameters_.emplace_back(std::move(name), value);
  return value;
}

at::Tensor Module::register_buffer(std::string name, at::Tensor value, BufferKind kind) {
  buffers_.emplace_back(std::move(name), value);
  if (kind == BufferKind::kRunning) running_buffers_.push_back(value);
  return value;
}

void Module::add_child(std::string name, std::shared_ptr<Module> module) {
  const auto same = [&](const auto& child) { return child.first == name; };
  check_internal(std::none_of(children_.begin(), children_.end(), same),
                 "a submodule was registered twice under one name");
  children_.emplace_back(std::move(name), std::move(module));
}

}  // namespace lerobot::nn
