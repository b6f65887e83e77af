// Running averages between two log lines, and the line itself in LeRobot's form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/base/json.h"
#include "lerobot/distributed/communicator.h"
#include "lerobot/distributed/step_clock.h"

namespace lerobot::train {

/// 12345 -> "12K": divided by 1000 until below 1000, no decimals, suffix "", K, M, B, T, Q.
std::string format_big_number(double number);

/// An average over the values since the last reset.
class Meter {
 public:
  enum class Style { kFixed2, kFixed3, kScientific, kShortest };
  Meter(std::string name, Style style) : name_(std::move(name)), style_(style) {}

  void add(double value);
  /// A 0-d tensor. One on an accelerator is summed there and read only when average() is asked for,
  /// so that a step does not wait for the device.
  void add(const at::Tensor& value);
  double average() const;
  /// As if `value` had been the average.
  void set_average(double value);
  bool empty() const { return count_ == 0; }
  void reset();

  const std::string& name() const { return name_; }
  /// "name:average"
  std::string text() const;

 private:
  std::string name_;
  Style style_;
  double sum_ = 0;
  at::Tensor device_sum_;
  std::int64_t count_ = 0;
};

/// The position in the data and the meters of one run.
class MetricsTracker {
 public:
  /// `samples_per_step`: batch size times data-parallel ranks.
  MetricsTracker(std::int64_t samples_per_step, std::int64_t frames, std::int64_t episodes,
                 std::int64_t initial_step);

  Meter loss{"loss", Meter::Style::kFixed3};
  Meter grad_norm{"grdn", Meter::Style::kFixed3};
  Meter lr{"lr", Meter::Style::kScientific};
  Meter data_s{"data_s", Meter::Style::kFixed3};    ///< waiting for the batch
  Meter prep_s{"prep_s", Meter::Style::kFixed3};    ///< device copy and preprocessor
  Meter update_s{"updt_s", Meter::Style::kFixed3};  ///< forward, backward, optimizer
  Meter step_s{"step_s", Meter::Style::kFixed3};    ///< the whole step
  Meter memory{"mem_gb", Meter::Style::kFixed2};    ///< GiB of a GPU at the most; empty on a CPU
  /// Of the loss, the last one; in lines only when it was set (fp16).
  Meter scale{"scale", Meter::Style::kShortest};
  /// The policy's own scalars, in order of first appearance: the same on every rank.
  Meter& policy_metric(std::string_view name);

  /// Memory of the process, bytes: now, and at the most since it was started.
  Meter process_memory{"process_memory_bytes", Meter::Style::kShortest};
  Meter process_memory_peak{"process_memory_peak_bytes", Meter::Style::kShortest};
  /// Where the time since the last line has gone, seconds by part; given as those of a step.
  void set_times(const distributed::StepTimes& seconds);

  void step() {
    ++step_;
    ++steps_since_reset_;
  }
  std::int64_t steps() const { return step_; }
  double samples_per_second() const;

  /// Makes the averages those of all ranks: losses, policy scalars and the times by part the mean,
  /// other times and memory the greatest; the gradient's norm and the learning rates stay this
  /// rank's. Collective, before a log line.
  void combine(const distributed::Communicator& ranks);

  /// "step:1 smpl:8 ep:1 epch:0.19 loss:13.935 ..."
  std::string line() const;
  /// One object of metrics.jsonl.
  Json to_json() const;
  void reset();

 private:
  std::vector<const Meter*> meters() const;
  std::vector<Meter*> memory_meters();

  std::int64_t samples_per_step_;
  std::int64_t frames_;
  std::int64_t episodes_;
  std::int64_t step_;
  std::int64_t steps_since_reset_ = 0;
  std::vector<Meter> policy_metrics_;
  std::vector<Meter> times_;  // "time_forward_s"
};

}  // namespace lerobot::train
