// SIGINT and SIGTERM: the first asks the loop to finish its step and save, the second ends at once.
#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "lerobot/base/error.h"

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

/// The end of a run whose work before the first step was interrupted.
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal);
  /// 128 + signal, as shells have it.
  int exit_code() const noexcept override { return 128 + signal_; }

 private:
  int signal_;
};

/// Throws Interrupted when a signal has arrived.
void throw_when_interrupted();

/// Calls a function once, in a thread of its own, soon after a signal has arrived: for what blocks
/// the thread that would ask for received().
class OnInterrupt {
 public:
  explicit OnInterrupt(std::function<void()> action);

 private:
  std::jthread thread_;
};

}  // namespace lerobot::train
