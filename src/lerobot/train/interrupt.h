// SIGINT and SIGTERM: the first asks the loop to finish its step and save, the second ends at once.
#pragma once

namespace lerobot::train {

/// Installs the handlers while it lives.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  /// The signal that has arrived, or 0.
  static int received();
};

}  // namespace lerobot::train
