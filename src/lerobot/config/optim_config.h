// Optimizer and scheduler options in LeRobot's order and with its defaults. `type` chooses which of
// the fields apply; files hold only those. Zeros stand where LeRobot has no default: the command
// line asks for those values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/describe/class.hpp>

namespace lerobot::config {

struct AdamConfig {
  static constexpr const char* kType = "adam";
  double lr = 1e-3;
  double weight_decay = 0.0;
  double grad_clip_norm = 10.0;
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
};
BOOST_DESCRIBE_STRUCT(AdamConfig, (), (lr, weight_decay, grad_clip_norm, betas, eps))

struct AdamWConfig {
  static constexpr const char* kType = "adamw";
  double lr = 1e-3;
  double weight_decay = 1e-2;
  double grad_clip_norm = 10.0;
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
};
BOOST_DESCRIBE_STRUCT(AdamWConfig, (), (lr, weight_decay, grad_clip_norm, betas, eps))

struct SgdConfig {
  static constexpr const char* kType = "sgd";
  double lr = 1e-3;
  double weight_decay = 0.0;
  double grad_clip_norm = 10.0;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
};
BOOST_DESCRIBE_STRUCT(SgdConfig, (),
                      (lr, weight_decay, grad_clip_norm, momentum, dampening, nesterov))

using OptimizerConfig = std::variant<AdamConfig, AdamWConfig, SgdConfig>;

/// factor(t) = t / warmup, then 1.
struct ConstantWithWarmupConfig {
  static constexpr const char* kType = "constant_with_warmup";
  std::int64_t num_warmup_steps = 1000;
};
BOOST_DESCRIBE_STRUCT(ConstantWithWarmupConfig, (), (num_warmup_steps))

/// factor(t) = t / warmup, then half a cosine down to 0 at the last step.
struct CosineAnnealingWithWarmupConfig {
  static constexpr const char* kType = "cosine_annealing_with_warmup";
  std::int64_t num_warmup_steps = 0;
};
BOOST_DESCRIBE_STRUCT(CosineAnnealingWithWarmupConfig, (), (num_warmup_steps))

struct CosineDecayWithWarmupConfig {
  static constexpr const char* kType = "cosine_decay_with_warmup";
  std::int64_t num_warmup_steps = 0;
  std::int64_t num_decay_steps = 0;
  double peak_lr = 0.0;
  double decay_lr = 0.0;
};
BOOST_DESCRIBE_STRUCT(CosineDecayWithWarmupConfig, (),
                      (num_warmup_steps, num_decay_steps, peak_lr, decay_lr))

/// One of diffusers' schedules, by name.
struct DiffuserSchedulerConfig {
  static constexpr const char* kType = "diffuser";
  std::optional<std::int64_t> num_warmup_steps;
  std::string name = "cosine";
};
BOOST_DESCRIBE_STRUCT(DiffuserSchedulerConfig, (), (num_warmup_steps, name))

struct VqbetSchedulerConfig {
  static constexpr const char* kType = "vqbet";
  std::int64_t num_warmup_steps = 0;
  std::int64_t num_vqvae_training_steps = 0;
  double num_cycles = 0.5;
};
BOOST_DESCRIBE_STRUCT(VqbetSchedulerConfig, (),
                      (num_warmup_steps, num_vqvae_training_steps, num_cycles))

using SchedulerConfig =
    std::variant<ConstantWithWarmupConfig, CosineAnnealingWithWarmupConfig,
                 CosineDecayWithWarmupConfig, DiffuserSchedulerConfig, VqbetSchedulerConfig>;

}  // namespace lerobot::config
