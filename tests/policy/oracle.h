// The oracles of policies: configurations, inputs, and what LeRobot computed from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lerobot/base/json.h"
#include "lerobot/config/command_line.h"
#include "lerobot/dataset/batch.h"
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

inline double norm_of(const at::Tensor& t) { return t.to(at::kDouble).norm().item<double>(); }

/// LeRobot's tensors of a training step: whole, or (above 2048 elements) as summaries.
class Expected {
 public:
  explicit Expected(const std::string& name)
      : tensors_(oracle(name) / (std::filesystem::exists(oracle(name) / "train.safetensors")
                                     ? "train.safetensors"
                                     : "train_small.safetensors")) {
    if (std::filesystem::exists(oracle(name) / "train_large.json"))
      summaries_ = read_json_file(oracle(name) / "train_large.json");
  }

  /// Relative to the largest value of the tensor, with `floor` as the least such value.
  void expect_near(const std::string& key, const at::Tensor& actual, double tolerance,
                   double floor) const {
    if (tensors_.contains(key)) {
      const at::Tensor expected = tensors_.tensor(key);
      ASSERT_EQ(actual.sizes(), expected.sizes()) << key;
      const double scale = std::max(expected.abs().max().item<double>(), floor);
      EXPECT_LE((actual - expected).abs().max().item<double>(), tolerance * scale) << key;
      return;
    }
    ASSERT_TRUE(summaries_.contains(key)) << key;
    const Json& summary = summaries_[key];
    const double norm = summary["norm"].get<double>();
    EXPECT_NEAR(norm_of(actual), norm, tolerance * norm) << key;
    const at::Tensor flat = actual.flatten();
    const double scale = std::max(actual.abs().max().item<double>(), floor);
    for (std::int64_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(flat[i].item<double>(), summary["first8"][i].get<double>(), tolerance * scale)
          << key;
      EXPECT_NEAR(flat[flat.numel() - 8 + i].item<double>(), summary["last8"][i].get<double>(),
                  tolerance * scale)
          << key;
    }
  }

  bool contains(const std::string& key) const {
    return tensors_.contains(key) || summaries_.contains(key);
  }
  at::Tensor tensor(const std::string& key) const { return tensors_.tensor(key); }
  double number(const std::string& key) const { return tensors_.tensor(key).item<double>(); }
  /// Of all tensors, whole or not.
  std::vector<std::string> names() const {
    std::vector<std::string> all = tensors_.names();
    for (const auto& [name, summary] : summaries_.items()) all.push_back(name);
    return all;
  }

 private:
  serialization::SafetensorsFile tensors_;
  Json summaries_ = Json::object();
};

}  // namespace lerobot::policy
