// How long batches were waited for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lerobot::train {

/// Times between a batch being asked for and being there, in seconds.
class Waits {
 public:
  void add(double seconds) { seconds_.push_back(seconds); }
  void clear() { seconds_.clear(); }

  /// The smallest wait that at least `fraction` of all do not exceed; 0 without any.
  double percentile(double fraction) {
    if (seconds_.empty()) return 0;
    const auto rank = static_cast<std::size_t>(fraction * static_cast<double>(seconds_.size() - 1));
    std::nth_element(seconds_.begin(), seconds_.begin() + static_cast<std::ptrdiff_t>(rank),
                     seconds_.end());
    return seconds_[rank];
  }

 private:
  std::vector<double> seconds_;
};

}  // namespace lerobot::train
