// Inner loops over contiguous float32 memory that fuse what ATen does in several passes. Called
// from ATen's parallel iteration, or serially; none of them allocates or throws.
#pragma once

#include <array>
#include <cstdint>

namespace lerobot::nn::cpu {

/// y = mask ? x * scale : x * 0.
void scale_masked(float* y, const float* x, const std::uint8_t* mask, float scale, std::int64_t n);
/// y = residual + (mask ? x * scale : x * 0).
void add_scaled_masked(float* y, const float* residual, const float* x, const std::uint8_t* mask,
                       float scale, std::int64_t n);
/// x = mask ? max(x, 0) * scale : max(x, 0) * 0.
void relu_scale_masked(float* x, const std::uint8_t* mask, float scale, std::int64_t n);
/// dx = y > 0 ? dy * scale : 0.
void relu_backward(float* dx, const float* dy, const float* y, float scale, std::int64_t n);

/// x = x * scale + shift, then + residual unless null, then max(., 0) if relu. One scale and shift
/// for the whole run, or (the _each form) one for each element.
void affine(float* x, float scale, float shift, const float* residual, bool relu, std::int64_t n);
void affine_each(float* x, const float* scale, const float* shift, const float* residual, bool relu,
                 std::int64_t n);
/// The way back: g = relu ? (y > 0 ? dy : 0) : dy; dx = g * scale; dresidual = g unless null.
void affine_backward(float* dx, float* dresidual, const float* dy, const float* y, float scale,
                     bool relu, std::int64_t n);
void affine_backward_each(float* dx, float* dresidual, const float* dy, const float* y,
                          const float* scale, bool relu, std::int64_t n);

inline constexpr int kMersenneWords = 624;

/// The next 624 words of an MT19937 state, in place.
void mersenne_twist(std::uint32_t* state);
/// The numbers that the generator gives for `words` state words.
void mersenne_temper(std::uint32_t* numbers, const std::uint32_t* state, std::int64_t words);
/// mask[i] = (numbers[2i] << 32 | numbers[2i + 1]) mod 2^53 < bound.
void mask_below(std::uint8_t* mask, const std::uint32_t* numbers, std::uint64_t bound,
                std::int64_t n);

}  // namespace lerobot::nn::cpu
