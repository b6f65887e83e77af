#include "lerobot/nn/cpu_loops.h"

#include <algorithm>

#include "lerobot/base/wide_loops.h"

// Products and sums are rounded one by one, as ATen's separate passes do.
LEROBOT_EXACT_LOOPS

namespace lerobot::nn::cpu {
namespace {

// Not std::max: a NaN stays a NaN, as in torch.
LEROBOT_ALWAYS_INLINE float relu_of(float x) { return x <= 0.0F ? 0.0F : x; }

LEROBOT_ALWAYS_INLINE void scale_masked_loop(float* __restrict y, const float* __restrict x,
                                             const std::uint8_t* __restrict mask, float scale,
                                             std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * (mask[i] ? scale : 0.0F);
}

LEROBOT_ALWAYS_INLINE void add_scaled_masked_loop(float* __restrict y,
                                                  const float* __restrict residual,
                                                  const float* __restrict x,
                                                  const std::uint8_t* __restrict mask, float scale,
                                                  std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = residual[i] + x[i] * (mask[i] ? scale : 0.0F);
}

LEROBOT_ALWAYS_INLINE void relu_scale_masked_loop(float* __restrict x,
                                                  const std::uint8_t* __restrict mask, float scale,
                                                  std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = relu_of(x[i]) * (mask[i] ? scale : 0.0F);
}

LEROBOT_ALWAYS_INLINE void relu_backward_loop(float* __restrict dx, const float* __restrict dy,
                                              const float* __restrict y, float scale,
                                              std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] <= 0.0F ? 0.0F : dy[i] * scale;
}

LEROBOT_ALWAYS_INLINE void affine_loop(float* __restrict x, float scale, float shift,
                                       const float* __restrict residual, bool relu,
                                       std::int64_t n) {
  if (residual) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = (x[i] * scale + shift) + residual[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * scale + shift;
  }
  if (relu) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = relu_of(x[i]);
  }
}

LEROBOT_ALWAYS_INLINE void affine_each_loop(float* __restrict x, const float* __restrict scale,
                                            const float* __restrict shift,
                                            const float* __restrict residual, bool relu,
                                            std::int64_t n) {
  if (residual) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = (x[i] * scale[i] + shift[i]) + residual[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * scale[i] + shift[i];
  }
  if (relu) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = relu_of(x[i]);
  }
}

LEROBOT_ALWAYS_INLINE void affine_backward_loop(float* __restrict dx, float* __restrict dresidual,
                                                const float* __restrict dy,
                                                const float* __restrict y, float scale, bool relu,
                                                std::int64_t n) {
  if (relu && dresidual) {
    for (std::int64_t i = 0; i < n; ++i) {
      dresidual[i] = y[i] <= 0.0F ? 0.0F : dy[i];
      dx[i] = dresidual[i] * scale;
    }
  } else if (relu) {
    for (std::int64_t i = 0; i < n; ++i) dx[i] = (y[i] <= 0.0F ? 0.0F : dy[i]) * scale;
  } else {
    for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * scale;
    if (dresidual) std::copy_n(dy, n, dresidual);
  }
}

LEROBOT_ALWAYS_INLINE void affine_backward_each_loop(
    float* __restrict dx, float* __restrict dresidual, const float* __restrict dy,
    const float* __restrict y, const float* __restrict scale, bool relu, std::int64_t n) {
  if (relu && dresidual) {
    for (std::int64_t i = 0; i < n; ++i) {
      dresidual[i] = y[i] <= 0.0F ? 0.0F : dy[i];
      dx[i] = dresidual[i] * scale[i];
    }
  } else if (relu) {
    for (std::int64_t i = 0; i < n; ++i) dx[i] = (y[i] <= 0.0F ? 0.0F : dy[i]) * scale[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * scale[i];
    if (dresidual) std::copy_n(dy, n, dresidual);
  }
}

LEROBOT_ALWAYS_INLINE void mersenne_twist_loop(std::uint32_t* state) {
  constexpr int kShift = 397;
  constexpr int kHead = kMersenneWords - kShift;
  const auto twist = [](std::uint32_t u, std::uint32_t v) {
    const std::uint32_t mixed = (u & 0x80000000U) | (v & 0x7fffffffU);
    return (mixed >> 1) ^ ((0U - (v & 1U)) & 0x9908b0dfU);
  };
  for (int i = 0; i < kHead; ++i) state[i] = state[i + kShift] ^ twist(state[i], state[i + 1]);
  for (int i = kHead; i < kMersenneWords - 1; ++i)
    state[i] = state[i - kHead] ^ twist(state[i], state[i + 1]);
  state[kMersenneWords - 1] = state[kShift - 1] ^ twist(state[kMersenneWords - 1], state[0]);
}

LEROBOT_ALWAYS_INLINE void mersenne_temper_loop(std::uint32_t* __restrict numbers,
                                                const std::uint32_t* __restrict state,
                                                std::int64_t words) {
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint32_t y = state[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    numbers[i] = y ^ (y >> 18);
  }
}

LEROBOT_ALWAYS_INLINE void mask_below_loop(std::uint8_t* __restrict mask,
                                           const std::uint32_t* __restrict numbers,
                                           std::uint64_t bound, std::int64_t n) {
  constexpr std::uint32_t kHighBits = (1U << 21) - 1;
  const std::uint32_t bound_high = static_cast<std::uint32_t>(bound >> 32);
  const std::uint32_t bound_low = static_cast<std::uint32_t>(bound);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t high = numbers[2 * i] & kHighBits;
    const std::uint32_t low = numbers[2 * i + 1];
    mask[i] = (high < bound_high) | ((high == bound_high) & (low < bound_low));
  }
}

}  // namespace

void scale_masked(float* y, const float* x, const std::uint8_t* mask, float scale, std::int64_t n) {
  run_widest<scale_masked_loop>(y, x, mask, scale, n);
}

void add_scaled_masked(float* y, const float* residual, const float* x, const std::uint8_t* mask,
                       float scale, std::int64_t n) {
  run_widest<add_scaled_masked_loop>(y, residual, x, mask, scale, n);
}

void relu_scale_masked(float* x, const std::uint8_t* mask, float scale, std::int64_t n) {
  run_widest<relu_scale_masked_loop>(x, mask, scale, n);
}

void relu_backward(float* dx, const float* dy, const float* y, float scale, std::int64_t n) {
  run_widest<relu_backward_loop>(dx, dy, y, scale, n);
}

void affine(float* x, float scale, float shift, const float* residual, bool relu, std::int64_t n) {
  run_widest<affine_loop>(x, scale, shift, residual, relu, n);
}

void affine_each(float* x, const float* scale, const float* shift, const float* residual, bool relu,
                 std::int64_t n) {
  run_widest<affine_each_loop>(x, scale, shift, residual, relu, n);
}

void affine_backward(float* dx, float* dresidual, const float* dy, const float* y, float scale,
                     bool relu, std::int64_t n) {
  run_widest<affine_backward_loop>(dx, dresidual, dy, y, scale, relu, n);
}

void affine_backward_each(float* dx, float* dresidual, const float* dy, const float* y,
                          const float* scale, bool relu, std::int64_t n) {
  run_widest<affine_backward_each_loop>(dx, dresidual, dy, y, scale, relu, n);
}

void mersenne_twist(std::uint32_t* state) { run_widest<mersenne_twist_loop>(state); }

void mersenne_temper(std::uint32_t* numbers, const std::uint32_t* state, std::int64_t words) {
  run_widest<mersenne_temper_loop>(numbers, state, words);
}

void mask_below(std::uint8_t* mask, const std::uint32_t* numbers, std::uint64_t bound,
                std::int64_t n) {
  run_widest<mask_below_loop>(mask, numbers, bound, n);
}

}  // namespace lerobot::nn::cpu
