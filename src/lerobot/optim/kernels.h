// The arithmetic of torch's CPU optimizers on flat float32 arrays, one pass over the memory.
//
// Each function rounds exactly where torch 2.11's operations round: a + alpha * b and lerp are
// fused multiply-adds where torch has them, all else is rounded operation by operation. Arrays must
// not overlap. Thread-safe.
#pragma once

#include <cstdint>

namespace lerobot::optim {

/// The numbers of one Adam or AdamW update of one parameter, rounded as torch hands them on.
struct AdamNumbers {
  bool decoupled_weight_decay;
  float weight_decay;  // coupled: gradient += weight_decay * parameter
  float keep;          // decoupled: parameter *= 1 - lr * weight_decay
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float denominator_scale;  // sqrt(1 - beta2^step)
  float eps;
  float negative_step_size;  // -lr / (1 - beta1^step)
};

/// First half: new moments, and the second one again into `root`, for take_square_roots().
void adam_moments(const AdamNumbers& numbers, const float* parameter, const float* gradient,
                  float* exp_avg, float* exp_avg_sq, float* root, std::int64_t length);
/// Second half: the new parameter.
void adam_parameter(const AdamNumbers& numbers, float* parameter, const float* exp_avg,
                    const float* root, std::int64_t length);

struct SgdNumbers {
  float weight_decay;
  float momentum;
  float one_minus_dampening;
  float negative_lr;
  bool nesterov;
  bool first_step;  // the momentum buffer starts as the gradient
};

/// `momentum_buffer` is null without momentum.
void sgd_parameter(const SgdNumbers& numbers, float* parameter, const float* gradient,
                   float* momentum_buffer, std::int64_t length);

/// shadow -= rate * (shadow - parameter)
void approach(float rate, float* shadow, const float* parameter, std::int64_t length);

}  // namespace lerobot::optim
