// How fast the last steps were, for the progress line.
#pragma once

#include <algorithm>

namespace lerobot::train {

/// Averages in which a step counts less the longer it is ago: half after fourteen steps.
class Pace {
 public:
  void add(double data_s, double step_s) {
    // The first steps count in full: an average that began at 0 would take long to rise.
    const double weight = std::max(kLeastWeight, 1.0 / ++steps_);
    data_s_ += weight * (data_s - data_s_);
    step_s_ += weight * (step_s - step_s_);
  }
  double steps_per_second() const { return step_s_ > 0 ? 1 / step_s_ : 0; }
  /// Of the time of a step, what is spent waiting for its batch.
  double data_share() const { return step_s_ > 0 ? data_s_ / step_s_ : 0; }

 private:
  static constexpr double kLeastWeight = 0.05;
  double steps_ = 0;
  double data_s_ = 0;
  double step_s_ = 0;
};

}  // namespace lerobot::train
