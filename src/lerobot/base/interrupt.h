// SIGINT and SIGTERM: the first asks for an orderly end, the second ends the process at once.
#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "lerobot/base/error.h"

namespace lerobot {

/// Installs the handlers while it lives.
class InterruptGuard {
 public:
  /// `notice` is written to standard error when the first signal arrives; it must outlive the
  /// guard.
  explicit InterruptGuard(const char* notice);
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  /// The signal that has arrived, or 0.
  static int received();
};

/// The end of work that a signal has interrupted.
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

}  // namespace lerobot
