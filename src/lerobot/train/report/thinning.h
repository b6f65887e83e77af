// Fewer points of a curve, without losing what an eye looks for: every bucket of steps keeps its
// least, its greatest and its mean value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lerobot/train/report/run_data.h"

namespace lerobot::train {

/// Values that are not finite are counted, and otherwise left out.
struct ThinPoint {
  std::int64_t step = 0;  ///< the last one of the bucket
  double least = 0;       ///< NaN, like the others, in a bucket without a finite value
  double greatest = 0;
  double mean = 0;
  std::int64_t not_finite = 0;
};

/// At most `most` points, each of as many consecutive values (the last one of fewer).
std::vector<ThinPoint> thin(const Series& series, std::size_t most);

}  // namespace lerobot::train
