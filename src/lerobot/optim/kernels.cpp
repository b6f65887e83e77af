#include "lerobot/optim/kernels.h"

#include <cmath>

#include "lerobot/base/wide_loops.h"

LEROBOT_EXACT_LOOPS

namespace lerobot::optim {
namespace {

template <bool kFused, bool kCoupledDecay, bool kSmallWeight>
LEROBOT_ALWAYS_INLINE void moments_loop(const AdamNumbers& n, const float* __restrict parameter,
                                        const float* __restrict gradient, float* __restrict exp_avg,
                                        float* __restrict exp_avg_sq, float* __restrict root,
                                        std::int64_t length) {
  const float weight_decay = n.weight_decay, beta2 = n.beta2, square_weight = n.one_minus_beta2;
  // lerp(start, end, w) = start + w (end - start), or end + (w - 1)(end - start) from w = 0.5 on.
  const float weight = kSmallWeight ? n.one_minus_beta1 : n.one_minus_beta1 - 1.0f;
  for (std::int64_t i = 0; i < length; ++i) {
    float g = gradient[i];
    if constexpr (kCoupledDecay) g = multiply_add<kFused>(weight_decay, parameter[i], g);
    const float m = exp_avg[i];
    exp_avg[i] = multiply_add<kFused>(weight, g - m, kSmallWeight ? m : g);
    const float v = multiply_add<kFused>(square_weight * g, g, exp_avg_sq[i] * beta2);
    exp_avg_sq[i] = v;
    root[i] = v;
  }
}

template <bool kFused>
LEROBOT_ALWAYS_INLINE void moments(const AdamNumbers& n, const float* parameter,
                                   const float* gradient, float* exp_avg, float* exp_avg_sq,
                                   float* root, std::int64_t length) {
  const bool coupled = n.weight_decay != 0.0f && !n.decoupled_weight_decay;
  const bool small = std::fabs(n.one_minus_beta1) < 0.5f;
  if (coupled && small)
    moments_loop<kFused, true, true>(n, parameter, gradient, exp_avg, exp_avg_sq, root, length);
  else if (coupled)
    moments_loop<kFused, true, false>(n, parameter, gradient, exp_avg, exp_avg_sq, root, length);
  else if (small)
    moments_loop<kFused, false, true>(n, parameter, gradient, exp_avg, exp_avg_sq, root, length);
  else
    moments_loop<kFused, false, false>(n, parameter, gradient, exp_avg, exp_avg_sq, root, length);
}

LEROBOT_ALWAYS_INLINE void parameter_loop(const AdamNumbers& n, float* __restrict parameter,
                                          const float* __restrict exp_avg,
                                          const float* __restrict root, std::int64_t length) {
  const float keep = n.keep, scale = n.denominator_scale, eps = n.eps;
  const float step_size = n.negative_step_size;
  for (std::int64_t i = 0; i < length; ++i)
    parameter[i] = parameter[i] * keep + (step_size * exp_avg[i]) / (root[i] / scale + eps);
}

template <bool kFused, bool kDecay, bool kMomentum>
LEROBOT_ALWAYS_INLINE void sgd_loop(const SgdNumbers& n, float* __restrict parameter,
                                    const float* __restrict gradient, float* __restrict buffer,
                                    std::int64_t length) {
  const float decay = n.weight_decay, momentum = n.momentum, fresh = n.one_minus_dampening;
  const float rate = n.negative_lr;
  const bool first = n.first_step, nesterov = n.nesterov;
  for (std::int64_t i = 0; i < length; ++i) {
    float g = gradient[i];
    if constexpr (kDecay) g = multiply_add<kFused>(decay, parameter[i], g);
    if constexpr (kMomentum) {
      const float b = first ? g : multiply_add<kFused>(fresh, g, buffer[i] * momentum);
      buffer[i] = b;
      g = nesterov ? multiply_add<kFused>(momentum, b, g) : b;
    }
    parameter[i] = multiply_add<kFused>(rate, g, parameter[i]);
  }
}

template <bool kFused>
LEROBOT_ALWAYS_INLINE void sgd(const SgdNumbers& n, float* parameter, const float* gradient,
                               float* buffer, std::int64_t length) {
  if (n.weight_decay != 0.0f && buffer)
    sgd_loop<kFused, true, true>(n, parameter, gradient, buffer, length);
  else if (n.weight_decay != 0.0f)
    sgd_loop<kFused, true, false>(n, parameter, gradient, buffer, length);
  else if (buffer)
    sgd_loop<kFused, false, true>(n, parameter, gradient, buffer, length);
  else
    sgd_loop<kFused, false, false>(n, parameter, gradient, buffer, length);
}

LEROBOT_ALWAYS_INLINE void approach_loop(float rate, float* __restrict shadow,
                                         const float* __restrict parameter, std::int64_t length) {
  for (std::int64_t i = 0; i < length; ++i)
    shadow[i] = shadow[i] - rate * (shadow[i] - parameter[i]);
}

}  // namespace

void adam_moments(const AdamNumbers& numbers, const float* parameter, const float* gradient,
                  float* exp_avg, float* exp_avg_sq, float* root, std::int64_t length) {
  run_widest<moments<true>, moments<kBaselineFuses>>(numbers, parameter, gradient, exp_avg,
                                                     exp_avg_sq, root, length);
}

void adam_parameter(const AdamNumbers& numbers, float* parameter, const float* exp_avg,
                    const float* root, std::int64_t length) {
  run_widest<parameter_loop>(numbers, parameter, exp_avg, root, length);
}

void sgd_parameter(const SgdNumbers& numbers, float* parameter, const float* gradient,
                   float* momentum_buffer, std::int64_t length) {
  run_widest<sgd<true>, sgd<kBaselineFuses>>(numbers, parameter, gradient, momentum_buffer, length);
}

void approach(float rate, float* shadow, const float* parameter, std::int64_t length) {
  run_widest<approach_loop>(rate, shadow, parameter, length);
}

}  // namespace lerobot::optim
