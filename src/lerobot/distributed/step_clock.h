// Where a rank's time goes: every moment belongs to one part of a step.
//
// The time is that of the device that computes. On the CPU it is the host's. A GPU runs behind the
// host, whose clock would show where the host waits and not what for: there an event is recorded in
// the current stream at every change of part, and read when the GPU has long passed it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

namespace lerobot::distributed {

enum class StepPart {
  kData,           ///< waiting for the batch
  kPreprocessing,  ///< to the device, normalisation
  kForward,
  kBackward,
  kCommunication,  ///< waiting for the other ranks, wherever in a step
  kOptimizer,      ///< clipping, update, moving average
  kCheckpoint,     ///< copies for a checkpoint, and waiting for the previous one
  kEvaluation,     ///< held-out loss
  kOther,          ///< log lines and the rest
};
inline constexpr std::size_t kStepParts = 9;
/// "data", "preprocessing", ...
const char* name_of(StepPart part);

/// Seconds by part.
using StepTimes = std::array<double, kStepParts>;

/// The rank's account. enter() belongs to the training thread, Communication to it and to threads
/// that it waits for (autograd's). A change of part costs tens of nanoseconds on the CPU, a few
/// microseconds of the host on a GPU.
class StepClock {
 public:
  /// Time counts from now on, as kOther.
  explicit StepClock(at::Device device);
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  /// From here on the time is `part`'s.
  void enter(StepPart part);

  /// While it lives, the time is kCommunication's. What a checkpoint, a held-out loss or a batch
  /// waits for stays theirs.
  class Communication {
   public:
    /// `clock` may be null.
    explicit Communication(StepClock* clock);
    Communication(const Communication&) = delete;
    Communication& operator=(const Communication&) = delete;
    ~Communication();

   private:
    StepClock* clock_;
    StepPart before_ = StepPart::kOther;
  };

  /// What has passed since the last call, by part; the sum is the time between the calls. On a GPU
  /// it waits until all that was asked of it is done.
  StepTimes take();

 private:
  using HostClock = std::chrono::steady_clock;
  /// A part that has ended on the host, and maybe not on the device yet.
  struct Interval {
    StepPart part;
    c10::Event end;
  };

  void change(StepPart part);
  c10::Event new_event();
  void count_passed(bool wait);

  at::Device device_;
  std::mutex mutex_;
  StepPart part_ = StepPart::kOther;
  StepTimes times_{};
  HostClock::time_point since_;        // on the CPU: when part_ began
  std::optional<c10::Event> counted_;  // on a GPU: up to here is in times_
  std::deque<Interval> intervals_;     // what comes after it
  std::vector<c10::Event> unused_;
};

}  // namespace lerobot::distributed
