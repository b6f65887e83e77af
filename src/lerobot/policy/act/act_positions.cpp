#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>

#include "lerobot/policy/act/act_model.h"

namespace lerobot::policy {
namespace {

constexpr double kTemperature = 10000.0;

/// Positions 1..count as angles in (0, 2 pi], by frequency: (count, size), sines and cosines in
/// turn.
at::Tensor axis_positions(std::int64_t count, std::int64_t size) {
  constexpr double kTwoPi = 2 * M_PI;
  constexpr double kEps = 1e-6;
  at::Tensor steps = at::arange(1, count + 1, at::kFloat);
  steps = steps / (steps.slice(0, -1) + kEps) * kTwoPi;
  const at::Tensor exponents = at::div(at::arange(size, at::kFloat), 2, "floor") * 2 / size;
  const at::Tensor angles = steps.unsqueeze(1) / at::pow(kTemperature, exponents);
  return at::stack({at::sin(angles.slice(1, 0, std::nullopt, 2)),
                    at::cos(angles.slice(1, 1, std::nullopt, 2))},
                   2)
      .flatten(1);
}

}  // namespace

at::Tensor sinusoidal_positions(std::int64_t count, std::int64_t size) {
  at::Tensor table = at::empty({count, size}, at::kFloat);
  float* out = table.mutable_data_ptr<float>();
  for (std::int64_t p = 0; p < count; ++p) {
    for (std::int64_t j = 0; j < size; ++j) {
      const double exponent = static_cast<double>(2 * (j / 2)) / static_cast<double>(size);
      const double angle = static_cast<double>(p) / std::pow(kTemperature, exponent);
      *out++ = static_cast<float>(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return table;
}

at::Tensor sinusoidal_positions_2d(std::int64_t height, std::int64_t width,
                                   std::int64_t size_per_axis) {
  const at::Tensor rows = axis_positions(height, size_per_axis).unsqueeze(1);
  const at::Tensor columns = axis_positions(width, size_per_axis).unsqueeze(0);
  return at::cat({rows.expand({height, width, size_per_axis}),
                  columns.expand({height, width, size_per_axis})},
                 2)
      .view({height * width, 2 * size_per_axis});
}

}  // namespace lerobot::policy
