// What a Communicator stands on. For those who build groups.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lerobot/base/threads.h"
#include "lerobot/distributed/communicator.h"
#include "lerobot/distributed/rank_monitor.h"
#include "lerobot/distributed/step_clock.h"

namespace lerobot::distributed {

/// One group of several ranks.
struct Communicator::State {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  c10::intrusive_ptr<c10d::Backend> gloo;
  /// Null when the group carries tensors of the CPU alone.
  c10::intrusive_ptr<c10d::Backend> nccl;
  std::shared_ptr<RankMonitor> monitor;
  /// Counts how long the training thread waits here. Null in a group of another thread.
  std::shared_ptr<StepClock> clock;
  /// Finishes what Gloo leaves to do (averages, sums of scattered parts), one after the other.
  std::unique_ptr<ThreadPool> finisher;
  /// Operations of ours that are made of sends: every rank counts the same.
  mutable std::atomic<std::uint32_t> own_tags{0};

  /// Throws the Error that names the rank to blame, as far as it can be known.
  [[noreturn]] void fail_operation(const char* operation, const std::exception& error) const;
};

struct GroupOptions {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  at::Device device = at::kCPU;
  std::chrono::milliseconds timeout{};
  /// The address of this machine that the other ranks can reach.
  std::string address;
  /// Communicator::State::clock.
  std::shared_ptr<StepClock> clock;
};

/// Meets the ranks of a group of at least two in `store`, whose keys are the group's own.
Communicator make_communicator(const c10::intrusive_ptr<c10d::Store>& store,
                               std::shared_ptr<RankMonitor> monitor, const GroupOptions& options);

}  // namespace lerobot::distributed
