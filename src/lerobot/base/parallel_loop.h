// One loop on several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lerobot/base/threads.h"

namespace lerobot {

/// Runs loops on a pool that it keeps. Used from one thread at a time. (torch's OpenMP threads
/// serve only code that is compiled with -fopenmp against the very libgomp of the torch wheel.)
class ParallelLoop {
 public:
  /// `name` (at most 15 characters) is what debuggers and top show.
  explicit ParallelLoop(const char* name) : name_(name) {}

  /// Calls body(i) once for every i in [0, count) on up to `threads` threads, the calling one among
  /// them, and waits. Rethrows the first exception of a body, after which no further i is begun.
  /// The order and the threads are not fixed.
  void run(int threads, std::int64_t count, const std::function<void(std::int64_t)>& body);

 private:
  const char* name_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace lerobot
