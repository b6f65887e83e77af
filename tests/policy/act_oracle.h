// The ACT oracles: configurations, inputs, and what LeRobot computed from them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include "lerobot/base/json.h"
#include "lerobot/config/command_line.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/policy/act/act_policy.h"
#include "lerobot/policy/registry.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::policy {

inline std::filesystem::path oracle(const std::string& name) {
  return std::filesystem::path(LEROBOT_TEST_DATA) / "oracles" / name;
}

inline void seed_torch(std::uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(seed);
}

/// The oracle's policy as LeRobot built it: global generator seeded with 1000.
inline std::unique_ptr<Policy> oracle_policy(const std::string& name) {
  const auto config = config::read_policy_config(oracle(name) / "config.json", policy_types());
  seed_torch(1000);
  return make_policy(*config, /*load_pretrained_backbone=*/true);
}

inline dataset::Batch oracle_batch(const std::string& name) {
  dataset::Batch batch;
  for (auto& [key, value] :
       serialization::SafetensorsFile(oracle(name) / "inputs.safetensors").all())
    batch.tensors.emplace(key, key.ends_with("_is_pad") ? value.to(at::kBool) : value);
  batch.frame_index = {0, 1};
  return batch;
}

}  // namespace lerobot::policy
