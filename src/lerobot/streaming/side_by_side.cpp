#include "lerobot/streaming/side_by_side.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "lerobot/base/threads.h"

namespace lerobot::streaming {
namespace {

/// What the threads of one call share.
struct Progress {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  std::exception_ptr failure;

  void fail(std::exception_ptr why) {
    stopping = true;
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::move(why);
  }
};

void work(Progress& progress, std::size_t count, const std::function<void(std::size_t)>& task) {
  try {
    while (!progress.stopping) {
      const std::size_t i = progress.next++;
      if (i >= count) break;
      task(i);
    }
  } catch (...) {
    progress.fail(std::current_exception());
  }
  const std::lock_guard lock(progress.mutex);
  --progress.running;
  progress.changed.notify_all();
}

}  // namespace

void side_by_side(std::size_t count, int threads, const char* name,
                  const std::function<void(std::size_t)>& task, const std::function<void()>& poll,
                  const std::function<void()>& cancel) {
  constexpr std::chrono::milliseconds kPollInterval(50);
  Progress progress;
  progress.running =
      static_cast<int>(std::min(count, static_cast<std::size_t>(std::max(threads, 1))));
  if (progress.running == 0) return;
  ThreadPool pool(progress.running, name);
  for (int i = progress.running; i > 0; --i) pool.submit([&] { work(progress, count, task); });

  std::unique_lock lock(progress.mutex);
  bool polling = static_cast<bool>(poll);
  while (progress.running > 0) {
    if (!polling) {
      progress.changed.wait(lock);
      continue;
    }
    progress.changed.wait_for(lock, kPollInterval);
    lock.unlock();
    try {
      poll();
    } catch (...) {
      polling = false;
      progress.fail(std::current_exception());
      if (cancel) cancel();
    }
    lock.lock();
  }
  if (progress.failure) std::rethrow_exception(progress.failure);
}

}  // namespace lerobot::streaming
