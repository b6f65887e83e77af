#include "lerobot/base/parallel_loop.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace lerobot {
namespace {

TEST(ParallelLoop, CallsTheBodyOnceForEveryNumber) {
  ParallelLoop loop("test");
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      loop.run(threads, count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
      for (const auto& each : calls) EXPECT_EQ(each, 1);
    }
  }
}

TEST(ParallelLoop, RethrowsWhatABodyThrowsAndStaysUsable) {
  ParallelLoop loop("test");
  for (const int threads : {1, 3}) {
    EXPECT_THROW(loop.run(threads, 100,
                          [](std::int64_t i) {
                            if (i == 7) throw std::runtime_error("seven");
                          }),
                 std::runtime_error);
    std::atomic<int> calls{0};
    loop.run(threads, 10, [&](std::int64_t) { ++calls; });
    EXPECT_EQ(calls, 10);
  }
}

}  // namespace
}  // namespace lerobot
