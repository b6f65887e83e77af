#include "lerobot/train/metrics.h"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

namespace lerobot::train {

std::string format_big_number(double number) {
  for (const char* suffix : {"", "K", "M", "B", "T", "Q"}) {
    if (std::abs(number) < 1000.0) return fmt::format("{:.0f}{}", number, suffix);
    number /= 1000.0;
  }
  return fmt::format("{}", number);
}

void Meter::add(double value) {
  sum_ += value;
  ++count_;
}

void Meter::add(const at::Tensor& value) {
  if (value.is_cpu()) {
    add(value.item().toDouble());
    return;
  }
  const at::Tensor wide = value.detach().to(at::kDouble);
  device_sum_ = device_sum_.defined() ? device_sum_ + wide : wide;
  ++count_;
}

double Meter::average() const {
  if (count_ == 0) return 0;
  const double on_device = device_sum_.defined() ? device_sum_.item().toDouble() : 0.0;
  return (sum_ + on_device) / static_cast<double>(count_);
}

void Meter::set_average(double value) {
  reset();
  add(value);
}

void Meter::reset() {
  sum_ = 0;
  count_ = 0;
  device_sum_.reset();
}

std::string Meter::text() const {
  const double value = average();
  switch (style_) {
    case Style::kScientific:
      return fmt::format("{}:{:.1e}", name_, value);
    case Style::kShortest:
      return fmt::format("{}:{:g}", name_, value);
    case Style::kFixed2:
      return fmt::format("{}:{:.2f}", name_, value);
    case Style::kFixed3:
      break;
  }
  return fmt::format("{}:{:.3f}", name_, value);
}

MetricsTracker::MetricsTracker(std::int64_t samples_per_step, std::int64_t frames,
                               std::int64_t episodes, std::int64_t initial_step)
    : samples_per_step_(samples_per_step),
      frames_(frames),
      episodes_(episodes),
      step_(initial_step) {}

Meter& MetricsTracker::policy_metric(std::string_view name) {
  for (Meter& meter : policy_metrics_)
    if (meter.name() == name) return meter;
  return policy_metrics_.emplace_back(std::string(name), Meter::Style::kFixed3);
}

void MetricsTracker::set_times(const distributed::StepTimes& seconds) {
  const auto steps = static_cast<double>(std::max<std::int64_t>(steps_since_reset_, 1));
  times_.clear();
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const auto part = static_cast<distributed::StepPart>(i);
    times_.emplace_back(fmt::format("time_{}_s", name_of(part)), Meter::Style::kFixed3);
    times_.back().add(seconds[i] / steps);
  }
}

double MetricsTracker::samples_per_second() const {
  const double seconds = step_s.average();
  return seconds > 0 ? static_cast<double>(samples_per_step_) / seconds : 0;
}

std::vector<const Meter*> MetricsTracker::meters() const {
  std::vector<const Meter*> meters = {&loss, &grad_norm, &lr, &data_s, &prep_s, &update_s, &step_s};
  if (!scale.empty()) meters.push_back(&scale);
  return meters;
}

std::vector<Meter*> MetricsTracker::memory_meters() {
  std::vector<Meter*> meters;
  for (Meter* meter : {&memory, &process_memory, &process_memory_peak})
    if (!meter->empty()) meters.push_back(meter);
  return meters;
}

void MetricsTracker::combine(const distributed::Communicator& ranks) {
  if (ranks.size() == 1) return;
  std::vector<Meter*> meters = {&data_s, &prep_s, &update_s, &step_s};
  for (Meter* meter : memory_meters()) meters.push_back(meter);
  const std::size_t greatest = meters.size();
  meters.push_back(&loss);
  for (auto* list : {&policy_metrics_, &times_})
    for (Meter& meter : *list) meters.push_back(&meter);
  const auto count = static_cast<std::int64_t>(meters.size());
  const at::Tensor own = at::empty({count}, at::kDouble);
  const at::Tensor all = at::empty({ranks.size(), count}, at::kDouble);
  for (std::size_t i = 0; i < meters.size(); ++i)
    own.mutable_data_ptr<double>()[i] = meters[i]->average();
  ranks.all_gather(all, own).wait();
  const at::Tensor mean = all.mean(0), most = all.amax(0);
  for (std::size_t i = 0; i < meters.size(); ++i)
    meters[i]->set_average((i < greatest ? most : mean).const_data_ptr<double>()[i]);
}

std::string MetricsTracker::line() const {
  const double samples = static_cast<double>(step_ * samples_per_step_);
  const double epochs = samples / static_cast<double>(frames_);
  std::string text =
      fmt::format("step:{} smpl:{} ep:{} epch:{:.2f}",
                  format_big_number(static_cast<double>(step_)), format_big_number(samples),
                  format_big_number(epochs * static_cast<double>(episodes_)), epochs);
  for (const Meter* meter : meters()) text += " " + meter->text();
  text += fmt::format(" smp/s:{:.0f}", samples_per_second());
  if (!memory.empty()) text += " " + memory.text();
  for (const Meter& meter : policy_metrics_) text += " " + meter.text();
  return text;
}

Json MetricsTracker::to_json() const {
  const double samples = static_cast<double>(step_ * samples_per_step_);
  const double epochs = samples / static_cast<double>(frames_);
  Json object = {{"step", step_},
                 {"samples", step_ * samples_per_step_},
                 {"episodes", epochs * static_cast<double>(episodes_)},
                 {"epochs", epochs}};
  for (const Meter* meter : meters()) object[meter->name()] = meter->average();
  object["samples_per_s"] = samples_per_second();
  if (!memory.empty()) object[memory.name()] = memory.average();
  for (const Meter& meter : policy_metrics_) object[meter.name()] = meter.average();
  for (const Meter& meter : times_) object[meter.name()] = meter.average();
  for (const Meter* meter : {&process_memory, &process_memory_peak})
    if (!meter->empty()) object[meter->name()] = std::llround(meter->average());
  return object;
}

void MetricsTracker::reset() {
  steps_since_reset_ = 0;
  for (Meter* meter : {&loss, &grad_norm, &lr, &data_s, &prep_s, &update_s, &step_s, &memory,
                       &scale, &process_memory, &process_memory_peak})
    meter->reset();
  times_.clear();
  for (Meter& meter : policy_metrics_) meter.reset();
}

}  // namespace lerobot::train
