#include "lerobot/policy/diffusion/noise_schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sigmoid.h>

#include "lerobot/base/error.h"
#include "lerobot/base/wide_loops.h"

LEROBOT_EXACT_LOOPS

namespace lerobot::policy {
namespace {

/// Betas under which alpha_bar at the part u of all steps is `alpha_bar(u)`, in double like
/// Python's.
at::Tensor betas_of(std::int64_t steps, const std::function<double(double)>& alpha_bar) {
  constexpr double kMost = 0.999;
  at::Tensor betas = at::empty({steps}, at::kFloat);
  float* out = betas.mutable_data_ptr<float>();
  const auto count = static_cast<double>(steps);
  for (std::int64_t i = 0; i < steps; ++i) {
    const double from = static_cast<double>(i) / count;
    const double to = static_cast<double>(i + 1) / count;
    out[i] = static_cast<float>(std::min(1.0 - alpha_bar(to) / alpha_bar(from), kMost));
  }
  return betas;
}

double squared_cosine(double u) {
  const double root = std::cos((u + 0.008) / 1.008 * std::numbers::pi / 2.0);
  return root * root;
}

double laplace(double u) {
  const double sign = 0.5 - u < 0 ? -1.0 : 1.0;
  const double lambda = -0.5 * sign * std::log(1.0 - 2.0 * std::fabs(0.5 - u) + 1e-6);
  const double ratio = std::exp(lambda);
  return std::sqrt(ratio / (1.0 + ratio));
}

at::Tensor make_betas(const DiffusionConfig& c) {
  const std::int64_t steps = c.num_train_timesteps;
  const auto line = [&](double from, double to) {
    return at::linspace(from, to, steps, at::kFloat);
  };
  if (c.beta_schedule == "squaredcos_cap_v2") return betas_of(steps, squared_cosine);
  if (c.beta_schedule == "laplace") return betas_of(steps, laplace);
  if (c.beta_schedule == "linear") return line(c.beta_start, c.beta_end);
  if (c.beta_schedule == "scaled_linear")
    return at::pow(line(std::sqrt(c.beta_start), std::sqrt(c.beta_end)), 2);
  if (c.beta_schedule == "sigmoid")
    return at::sigmoid(line(-6, 6)) * (c.beta_end - c.beta_start) + c.beta_start;
  fail(
      "policy.beta_schedule: expected squaredcos_cap_v2, linear, scaled_linear, sigmoid or "
      "laplace, "
      "found {}",
      c.beta_schedule);
}

/// (B) as (B, 1, 1, ...), one value a sample.
at::Tensor per_sample(const at::Tensor& values, const at::Tensor& samples) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(samples.dim()), 1);
  shape[0] = -1;
  return values.view(shape);
}

}  // namespace

NoiseSchedule::NoiseSchedule(const DiffusionConfig& config)
    : is_ddim_(config.noise_scheduler_type == "DDIM"),
      predicts_noise_(config.prediction_type == "epsilon"),
      clips_(config.clip_sample),
      clip_range_(config.clip_sample_range),
      betas_(make_betas(config)),
      alpha_bars_(at::cumprod(1.0 - betas_, 0)),
      device_alpha_bars_(alpha_bars_) {}

at::Tensor NoiseSchedule::add_noise(const at::Tensor& clean, const at::Tensor& noise,
                                    const at::Tensor& steps) {
  if (device_alpha_bars_.device() != clean.device())
    device_alpha_bars_ = alpha_bars_.to(clean.device());
  const at::Tensor alpha_bar =
      per_sample(device_alpha_bars_.to(clean.scalar_type()).index_select(0, steps), clean);
  return at::pow(alpha_bar, 0.5) * clean + at::pow(1.0 - alpha_bar, 0.5) * noise;
}

std::vector<std::int64_t> NoiseSchedule::inference_steps(std::int64_t count) const {
  const std::int64_t all = betas_.size(0);
  check_internal(count >= 1 && count <= all, "more steps of prediction than of training");
  std::vector<std::int64_t> steps;
  for (std::int64_t i = count - 1; i >= 0; --i) steps.push_back(i * (all / count));
  return steps;
}

NoiseSchedule::Denoised NoiseSchedule::denoise(const at::Tensor& sample, const at::Tensor& output,
                                               std::int64_t t, std::int64_t count) const {
  const float* alpha_bars = alpha_bars_.const_data_ptr<float>();
  const std::int64_t before = t - betas_.size(0) / count;
  const float a = alpha_bars[t];
  const float a_before = before >= 0 ? alpha_bars[before] : 1.0F;
  const float b = 1.0F - a;
  const float b_before = 1.0F - a_before;

  const at::Tensor predicted =
      predicts_noise_ ? (sample - std::sqrt(b) * output) / std::sqrt(a) : output;
  const at::Tensor clean = clips_ ? at::clamp(predicted, -clip_range_, clip_range_) : predicted;
  if (is_ddim_) {
    const at::Tensor noise =
        predicts_noise_ ? output : (sample - std::sqrt(a) * predicted) / std::sqrt(b);
    return {std::sqrt(a_before) * clean + std::sqrt(b_before) * noise, 0.0};
  }
  const float step_alpha = a / a_before;
  const float step_beta = 1.0F - step_alpha;
  const float clean_weight = std::sqrt(a_before) * step_beta / b;
  const float sample_weight = std::sqrt(step_alpha) * b_before / b;
  const at::Tensor mean = clean_weight * clean + sample_weight * sample;
  if (t == 0) return {mean, 0.0};
  constexpr float kLeastVariance = 1e-20F;
  const float variance = std::max(b_before / b * step_beta, kLeastVariance);
  return {mean, std::sqrt(variance)};
}

}  // namespace lerobot::policy
