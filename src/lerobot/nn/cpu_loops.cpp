#include "lerobot/nn/cpu_loops.h"

#include <algorithm>

// One binary runs everywhere and uses AVX2 where it is. Without FMA: products and sums are rounded
// one by one, as ATen's separate passes do.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define LEROBOT_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LEROBOT_VECTOR_CLONES
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

namespace lerobot::nn::cpu {
namespace {

// Not std::max: a NaN stays a NaN, as in torch.
inline float relu_of(float x) { return x <= 0.0F ? 0.0F : x; }

}  // namespace

LEROBOT_VECTOR_CLONES
void scale_masked(float* __restrict y, const float* __restrict x,
                  const std::uint8_t* __restrict mask, float scale, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * (mask[i] ? scale : 0.0F);
}

LEROBOT_VECTOR_CLONES
void add_scaled_masked(float* __restrict y, const float* __restrict residual,
                       const float* __restrict x, const std::uint8_t* __restrict mask, float scale,
                       std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = residual[i] + x[i] * (mask[i] ? scale : 0.0F);
}

LEROBOT_VECTOR_CLONES
void relu_scale_masked(float* __restrict x, const std::uint8_t* __restrict mask, float scale,
                       std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = relu_of(x[i]) * (mask[i] ? scale : 0.0F);
}

LEROBOT_VECTOR_CLONES
void relu_backward(float* __restrict dx, const float* __restrict dy, const float* __restrict y,
                   float scale, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] <= 0.0F ? 0.0F : dy[i] * scale;
}

LEROBOT_VECTOR_CLONES
void affine(float* __restrict x, float scale, float shift, const float* __restrict residual,
            bool relu, std::int64_t n) {
  if (residual) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = (x[i] * scale + shift) + residual[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * scale + shift;
  }
  if (relu) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = relu_of(x[i]);
  }
}

LEROBOT_VECTOR_CLONES
void affine_each(float* __restrict x, const float* __restrict scale, const float* __restrict shift,
                 const float* __restrict residual, bool relu, std::int64_t n) {
  if (residual) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = (x[i] * scale[i] + shift[i]) + residual[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * scale[i] + shift[i];
  }
  if (relu) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = relu_of(x[i]);
  }
}

LEROBOT_VECTOR_CLONES
void affine_backward(float* __restrict dx, float* __restrict dresidual, const float* __restrict dy,
                     const float* __restrict y, float scale, bool relu, std::int64_t n) {
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

LEROBOT_VECTOR_CLONES
void affine_backward_each(float* __restrict dx, float* __restrict dresidual,
                          const float* __restrict dy, const float* __restrict y,
                          const float* __restrict scale, bool relu, std::int64_t n) {
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

LEROBOT_VECTOR_CLONES
void mersenne_twist(std::uint32_t* state) {
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

LEROBOT_VECTOR_CLONES
void mersenne_temper(std::uint32_t* __restrict numbers, const std::uint32_t* __restrict state,
                     std::int64_t words) {
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint32_t y = state[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    numbers[i] = y ^ (y >> 18);
  }
}

LEROBOT_VECTOR_CLONES
void mask_below(std::uint8_t* __restrict mask, const std::uint32_t* __restrict numbers,
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

}  // namespace lerobot::nn::cpu
