#include "lerobot/base/parallel_loop.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <latch>

namespace lerobot {

void ParallelLoop::run(int threads, std::int64_t count,
                       const std::function<void(std::int64_t)>& body) {
  const auto helpers = static_cast<int>(std::min<std::int64_t>(threads, count)) - 1;
  if (helpers <= 0) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  if (!pool_ || pool_->size() < helpers) pool_ = std::make_unique<ThreadPool>(threads - 1, name_);

  std::atomic<std::int64_t> next{0};
  std::atomic_flag failed;
  std::exception_ptr error;
  std::latch done(helpers);
  const auto work = [&] {
    try {
      for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
      next = count;
    }
  };
  for (int i = 0; i < helpers; ++i) {
    pool_->submit([&] {
      work();
      done.count_down();
    });
  }
  work();
  done.wait();
  if (error) std::rethrow_exception(error);
}

}  // namespace lerobot
