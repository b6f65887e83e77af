#include "lerobot/base/threads.h"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

namespace lerobot {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  std::atomic<int> runs{0};
  std::promise<void> all_done;
  ThreadPool pool(3, "test");
  for (int i = 0; i < 1000; ++i)
    pool.submit([&] {
      if (++runs == 1000) all_done.set_value();
    });
  all_done.get_future().wait();
  EXPECT_EQ(runs, 1000);
}

TEST(ThreadPool, EndsWithoutRunningWhatHasNotBegun) {
  std::atomic<int> runs{0};
  std::promise<void> begun, go_on;
  {
    ThreadPool pool(1, "test");
    pool.submit([&] {
      begun.set_value();
      go_on.get_future().wait();
      ++runs;
    });
    for (int i = 0; i < 10; ++i) pool.submit([&] { ++runs; });
    begun.get_future().wait();
    // The destructor runs while the first task is still under way.
    std::thread release([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      go_on.set_value();
    });
    release.detach();
  }
  EXPECT_EQ(runs, 1);
}

TEST(AvailableCpus, IsAtLeastOne) { EXPECT_GE(available_cpus(), 1); }

}  // namespace
}  // namespace lerobot
