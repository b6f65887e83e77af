#include "lerobot/distributed/step_clock.h"

#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lerobot::distributed {
namespace {

/// Parts in which waiting for other ranks is told apart.
bool tells_communication(StepPart part) {
  return part == StepPart::kForward || part == StepPart::kBackward ||
         part == StepPart::kOptimizer || part == StepPart::kOther;
}

}  // namespace

const char* name_of(StepPart part) {
  constexpr std::array<const char*, kStepParts> kNames = {
      "data",      "preprocessing", "forward",    "backward", "communication",
      "optimizer", "checkpoint",    "evaluation", "other"};
  return kNames[static_cast<std::size_t>(part)];
}

StepClock::StepClock(at::Device device) : device_(device), since_(HostClock::now()) {
  if (!device_.is_cpu()) counted_ = new_event();
}

void StepClock::enter(StepPart part) {
  const std::lock_guard lock(mutex_);
  change(part);
}

void StepClock::change(StepPart part) {
  const StepPart ended = std::exchange(part_, part);
  if (device_.is_cpu()) {
    const auto now = HostClock::now();
    times_[static_cast<std::size_t>(ended)] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    return;
  }
  intervals_.push_back({ended, new_event()});
  count_passed(/*wait=*/false);
}

c10::Event StepClock::new_event() {
  // The one flag under which CUDA keeps an event's time.
  c10::Event event = [&] {
    if (unused_.empty()) return c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event old = std::move(unused_.back());
    unused_.pop_back();
    return old;
  }();
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return event;
}

/// Moves what the device has passed from intervals_ to times_.
void StepClock::count_passed(bool wait) {
  constexpr double kSecondsOfMillisecond = 1e-3;
  if (wait && !intervals_.empty()) intervals_.back().end.synchronize();
  while (!intervals_.empty() && intervals_.front().end.query()) {
    Interval& interval = intervals_.front();
    times_[static_cast<std::size_t>(interval.part)] +=
        kSecondsOfMillisecond * counted_->elapsedTime(interval.end);
    unused_.push_back(std::move(*counted_));
    counted_ = std::move(interval.end);
    intervals_.pop_front();
  }
}

StepTimes StepClock::take() {
  const std::lock_guard lock(mutex_);
  change(part_);
  if (!device_.is_cpu()) count_passed(/*wait=*/true);
  return std::exchange(times_, {});
}

StepClock::Communication::Communication(StepClock* clock) : clock_(clock) {
  if (clock_ == nullptr) return;
  const std::lock_guard lock(clock_->mutex_);
  before_ = clock_->part_;
  if (tells_communication(before_))
    clock_->change(StepPart::kCommunication);
  else
    clock_ = nullptr;
}

StepClock::Communication::~Communication() {
  if (clock_ != nullptr) clock_->enter(before_);
}

}  // namespace lerobot::distributed
