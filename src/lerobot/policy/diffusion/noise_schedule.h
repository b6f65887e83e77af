// The noise of diffusion: how much of it a training step adds, and how prediction takes it away
// again, step by step. As diffusers' DDPMScheduler and DDIMScheduler with LeRobot's settings:
// variance fixed_small, leading time steps, eta 0; the same float32 numbers in the same order of
// operations.
//
// Steps are numbered 0..T-1, T - 1 the noisiest. alpha_bar(t) is the part of the clean signal's
// power that is left at step t, the product of 1 - beta up to t.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/policy/diffusion/diffusion_config.h"

namespace lerobot::policy {

class NoiseSchedule {
 public:
  explicit NoiseSchedule(const DiffusionConfig& config);

  /// sqrt(alpha_bar) clean + sqrt(1 - alpha_bar) noise, each sample (first dimension) at its own
  /// step; steps (B) int64.
  at::Tensor add_noise(const at::Tensor& clean, const at::Tensor& noise, const at::Tensor& steps);

  /// The steps that a prediction in `count` steps visits, noisiest first: multiples of T / count.
  std::vector<std::int64_t> inference_steps(std::int64_t count) const;

  /// The sample before step `t` from the one at it.
  struct Denoised {
    at::Tensor mean;
    double deviation;  // of the normal noise to add; 0: none
  };
  /// `output` is what the network says to `sample` at step `t`; the prediction takes `count` steps.
  Denoised denoise(const at::Tensor& sample, const at::Tensor& output, std::int64_t t,
                   std::int64_t count) const;

  const at::Tensor& betas() const { return betas_; }            // (T) float32
  const at::Tensor& alpha_bars() const { return alpha_bars_; }  // (T) float32

 private:
  bool is_ddim_;
  bool predicts_noise_;
  bool clips_;
  double clip_range_;
  at::Tensor betas_;
  at::Tensor alpha_bars_;         // on the CPU
  at::Tensor device_alpha_bars_;  // where add_noise() was last called
};

}  // namespace lerobot::policy
