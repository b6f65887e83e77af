// A fixed set of worker threads with one queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lerobot {

/// Runs tasks in the order in which they were submitted, on a fixed number of threads. Thread-safe.
/// A task must not throw: whoever submits work carries its exception back to whoever waits for it.
/// The destructor drops tasks that have not begun and waits for those that have.
class ThreadPool {
 public:
  /// `name` (at most 15 characters) is what debuggers and top show.
  ThreadPool(int threads, const char* name);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  void submit(std::function<void()> task);
  int size() const { return static_cast<int>(threads_.size()); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

/// Threads that this process may use: its CPU affinity, and a container's CPU quota if one is set.
int available_cpus();

}  // namespace lerobot
