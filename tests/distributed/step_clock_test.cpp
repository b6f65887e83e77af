#include "lerobot/distributed/step_clock.h"

#include <chrono>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

namespace lerobot::distributed {
namespace {

using namespace std::chrono_literals;

double of(const StepTimes& times, StepPart part) { return times[static_cast<std::size_t>(part)]; }

TEST(StepClock, GivesEveryMomentToOnePart) {
  StepClock clock(at::kCPU);
  const auto start = std::chrono::steady_clock::now();
  clock.enter(StepPart::kForward);
  std::this_thread::sleep_for(20ms);
  clock.enter(StepPart::kBackward);
  std::this_thread::sleep_for(10ms);
  clock.enter(StepPart::kOther);
  const StepTimes times = clock.take();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(of(times, StepPart::kForward), 0.020);
  EXPECT_GE(of(times, StepPart::kBackward), 0.010);
  EXPECT_LE(std::accumulate(times.begin(), times.end(), 0.0), seconds + 0.001);
  EXPECT_EQ(of(clock.take(), StepPart::kForward), 0) << "take() begins anew";
}

TEST(StepClock, TellsWaitingForOthersFromThePartThatWaits) {
  StepClock clock(at::kCPU);
  clock.enter(StepPart::kBackward);
  {
    const StepClock::Communication communication(&clock);
    std::this_thread::sleep_for(20ms);
  }
  std::this_thread::sleep_for(10ms);
  const StepTimes times = clock.take();
  EXPECT_GE(of(times, StepPart::kCommunication), 0.020);
  EXPECT_GE(of(times, StepPart::kBackward), 0.010);
  EXPECT_LT(of(times, StepPart::kBackward), 0.020);
}

TEST(StepClock, LeavesACheckpointWhatItWaitsFor) {
  StepClock clock(at::kCPU);
  clock.enter(StepPart::kCheckpoint);
  {
    const StepClock::Communication communication(&clock);
    std::this_thread::sleep_for(10ms);
  }
  const StepTimes times = clock.take();
  EXPECT_GE(of(times, StepPart::kCheckpoint), 0.010);
  EXPECT_EQ(of(times, StepPart::kCommunication), 0);
}

}  // namespace
}  // namespace lerobot::distributed
