#include "lerobot/dataset/depth.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/arange.h>

#include "lerobot/base/error.h"

namespace lerobot::dataset {
namespace {

constexpr int kLargestCode = 4095;  // 12 bits
constexpr double kMillimetresPerMetre = 1000.0;
constexpr double kLargestMillimetres = 65535.0;

}  // namespace

DepthDequantizer::DepthDequantizer(const DepthQuantizer& quantizer, std::string_view output_unit) {
  check_internal(output_unit == "m" || output_unit == "mm", "unknown depth unit");
  // One code more than the quantiser writes: it and all above it are clamped to the largest
  // distance.
  at::Tensor table = at::arange(kLargestCode + 2, at::kFloat);
  if (quantizer.use_log) {
    const double log_min = std::log(quantizer.min_m + quantizer.shift_m);
    const double log_max = std::log(quantizer.max_m + quantizer.shift_m);
    table.mul_((log_max - log_min) / kLargestCode).add_(log_min).exp_().sub_(quantizer.shift_m);
  } else {
    table.mul_((quantizer.max_m - quantizer.min_m) / kLargestCode).add_(quantizer.min_m);
  }
  table.clamp_(quantizer.min_m, quantizer.max_m);
  if (output_unit == "mm")
    table.mul_(kMillimetresPerMetre).round_().clamp_(0.0, kLargestMillimetres);
  const float* values = table.const_data_ptr<float>();
  distances_.assign(values, values + table.numel());
}

void DepthDequantizer::apply(std::span<const std::uint16_t> codes, float* out) const {
  const float* distances = distances_.data();
  for (std::size_t i = 0; i < codes.size(); ++i)
    out[i] = distances[std::min<int>(codes[i], kLargestCode + 1)];
}

}  // namespace lerobot::dataset
