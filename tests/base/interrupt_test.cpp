#include "lerobot/base/interrupt.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

namespace lerobot {
namespace {

TEST(Interrupt, TheFirstSignalIsRememberedAndEndsWorkThatAsks) {
  const InterruptGuard guard("");
  EXPECT_EQ(InterruptGuard::received(), 0);
  EXPECT_NO_THROW(throw_when_interrupted());
  std::raise(SIGTERM);
  EXPECT_EQ(InterruptGuard::received(), SIGTERM);
  try {
    throw_when_interrupted();
    FAIL() << "nothing was thrown";
  } catch (const Interrupted& interrupted) {
    EXPECT_EQ(interrupted.exit_code(), 128 + SIGTERM);
    EXPECT_STREQ(interrupted.what(), "stopped by SIGTERM");
  }
}

TEST(Interrupt, ANewGuardBeginsWithoutASignal) {
  {
    const InterruptGuard guard("");
    std::raise(SIGINT);
  }
  const InterruptGuard guard("");
  EXPECT_EQ(InterruptGuard::received(), 0);
}

TEST(Interrupt, TheSecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard("once more\n");
        std::raise(SIGINT);
        std::raise(SIGINT);
        std::_Exit(0);
      },
      testing::ExitedWithCode(130), "once more");
}

TEST(Interrupt, AnActionIsCalledForAThreadThatCannotAsk) {
  const InterruptGuard guard("");
  std::atomic<int> calls{0};
  {
    const OnInterrupt idle([&] { ++calls; });
  }
  EXPECT_EQ(calls, 0) << "without a signal it only ends";
  const OnInterrupt action([&] { ++calls; });
  std::raise(SIGINT);
  for (int i = 0; i < 500 && calls == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace lerobot
