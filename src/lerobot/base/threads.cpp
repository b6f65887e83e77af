#include "lerobot/base/threads.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <pthread.h>
#include <sched.h>
#include <utility>

namespace lerobot {

ThreadPool::ThreadPool(int threads, const char* name) {
  threads_.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { run(); });
    pthread_setname_np(threads_.back().native_handle(), name);
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ThreadPool::submit(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void ThreadPool::run() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

int available_cpus() {
  int count = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
  // cgroup v2: "<quota> <period>" in microseconds, or "max <period>".
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (quota_file >> quota >> period && quota > 0 && period > 0)
    count = std::min(count, static_cast<int>(std::ceil(quota / period)));
  return std::max(count, 1);
}

}  // namespace lerobot
