// What the tests of diffusion share: its oracles' inputs, and a listener to modules.
#pragma once

#include <map>
#include <string>

#include "lerobot/policy/diffusion/diffusion_policy.h"
#include "tests/policy/oracle.h"

namespace lerobot::policy {

inline DiffusionPolicy& as_diffusion(Policy& policy) {
  return dynamic_cast<DiffusionPolicy&>(policy);
}

/// The cameras' images are one file for all cases.
inline dataset::Batch diffusion_batch(const std::string& name, const Policy& policy) {
  dataset::Batch batch = oracle_batch(name);
  const serialization::SafetensorsFile images(oracle("diffusion_images_u8.safetensors"));
  for (const auto& [key, feature] : policy.config().input_features)
    if (feature.type == config::FeatureType::kVisual)
      batch.tensors.emplace(key, images.tensor(key).to(at::kFloat).div_(255.0));
  return batch;
}

/// Keeps what modules return.
class Listener {
 public:
  explicit Listener(nn::Module& root) {
    for (const auto& [name, module] : root.named_modules()) {
      if (name.empty() || !module->is_callable()) continue;
      Ear& ear = ears_[name];
      ear.module = module;
      module->set_forward_hooks(&ear);
    }
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() {
    for (auto& [name, ear] : ears_) ear.module->set_forward_hooks(nullptr);
  }

  /// Of the last call; undefined when there was none.
  at::Tensor heard(const std::string& module) const {
    const auto found = ears_.find(module);
    return found == ears_.end() ? at::Tensor() : found->second.result;
  }

 private:
  struct Ear final : nn::ForwardHooks {
    void before_forward() override {}
    at::Tensor input(const at::Tensor& argument) override { return argument; }
    at::Tensor output(const at::Tensor& tensor) override {
      result = tensor.detach().clone();
      return tensor;
    }
    void after_forward() override {}
    nn::Module* module = nullptr;
    at::Tensor result;
  };
  std::map<std::string, Ear> ears_;
};

}  // namespace lerobot::policy
