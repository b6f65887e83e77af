// Depth codes of a video back to distances.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lerobot/dataset/dataset_info.h"

namespace lerobot::dataset {

/// The inverse of LeRobot's 12-bit quantiser as a table over its codes, computed with torch's own
/// operations so that values equal LeRobot's to the bit. Thread-safe.
class DepthDequantizer {
 public:
  /// `output_unit`: "m" gives metres within the quantiser's range, "mm" whole millimetres.
  DepthDequantizer(const DepthQuantizer& quantizer, std::string_view output_unit);

  /// Writes codes.size() distances to `out`.
  void apply(std::span<const std::uint16_t> codes, float* out) const;

 private:
  std::vector<float> distances_;
};

}  // namespace lerobot::dataset
