#include "lerobot/train/report/thinning.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lerobot::train {
namespace {

ThinPoint bucket(const Series& series, std::size_t begin, std::size_t end) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  ThinPoint point{series.steps[end - 1], kNone, kNone, kNone, 0};
  double sum = 0;
  std::int64_t finite = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const double value = series.values[i];
    if (!std::isfinite(value)) {
      ++point.not_finite;
      continue;
    }
    point.least = finite == 0 ? value : std::min(point.least, value);
    point.greatest = finite == 0 ? value : std::max(point.greatest, value);
    sum += value;
    ++finite;
  }
  if (finite > 0) point.mean = sum / static_cast<double>(finite);
  return point;
}

}  // namespace

std::vector<ThinPoint> thin(const Series& series, std::size_t most) {
  const std::size_t count = series.values.size();
  const std::size_t size = (count + most - 1) / most;
  std::vector<ThinPoint> points;
  for (std::size_t begin = 0; begin < count; begin += size)
    points.push_back(bucket(series, begin, std::min(begin + size, count)));
  return points;
}

}  // namespace lerobot::train
