#include "lerobot/optim/scheduler.h"

#include <algorithm>

#include "lerobot/base/error.h"

namespace lerobot::optim {
namespace {

constexpr const char* kFile = "scheduler_state.json";

/// The list of `count` numbers under `key`.
std::vector<double> numbers_of(const Json& state, const char* key, std::size_t count) {
  const Json& list = state[key];
  if (!list.is_array() || list.size() != count)
    fail("{}: \"{}\" must be a list of {} numbers, one a parameter group, found {}", kFile, key,
         count, list.dump());
  std::vector<double> numbers;
  for (const Json& number : list) {
    if (!number.is_number())
      fail("{}: \"{}\" must hold numbers, found {}", kFile, key, number.dump());
    numbers.push_back(number.get<double>());
  }
  return numbers;
}

}  // namespace

Scheduler::Scheduler(const config::SchedulerConfig& config, Optimizer& optimizer,
                     std::int64_t steps)
    : optimizer_(&optimizer), schedule_(make_schedule(config, steps, optimizer.default_lr())) {
  for (Group& group : optimizer_->groups()) {
    if (!group.initial_lr) group.initial_lr = group.lr;
    base_lrs_.push_back(*group.initial_lr);
  }
  set_rates();
}

void Scheduler::step() {
  ++last_epoch_;
  set_rates();
}

void Scheduler::set_rates() {
  const double factor = schedule_(last_epoch_);
  for (std::size_t i = 0; i < base_lrs_.size(); ++i)
    optimizer_->groups()[i].lr = base_lrs_[i] * factor;
}

Json Scheduler::state() const {
  Json rates = Json::array(), lambdas = Json::array();
  for (const Group& group : optimizer_->groups()) {
    rates.push_back(group.lr);
    lambdas.push_back(nullptr);
  }
  return {{"base_lrs", base_lrs_},
          {"last_epoch", last_epoch_},
          {"_step_count", last_epoch_ + 1},
          {"_is_initial", false},
          {"_get_lr_called_within_step", false},
          {"_last_lr", rates},
          {"lr_lambdas", lambdas}};
}

void Scheduler::load_state(const Json& saved) {
  if (!saved.is_object()) fail("{} must hold an object, found {}", kFile, saved.type_name());
  const Json ours = state();
  for (const auto& [key, value] : ours.items())
    if (!saved.contains(key)) fail("{}: \"{}\" is missing", kFile, key);
  for (const auto& [key, value] : saved.items())
    if (!ours.contains(key)) fail("{}: unknown key \"{}\"", kFile, key);
  const std::vector<double> base_lrs = numbers_of(saved, "base_lrs", base_lrs_.size());
  const std::vector<double> rates = numbers_of(saved, "_last_lr", base_lrs_.size());
  const Json& last_epoch = saved["last_epoch"];
  if (!last_epoch.is_number_integer() || last_epoch.get<std::int64_t>() < 0)
    fail("{}: \"last_epoch\" must be a step of at least 0, found {}", kFile, last_epoch.dump());
  if (!saved["_step_count"].is_number_integer() ||
      saved["_step_count"].get<std::int64_t>() != last_epoch.get<std::int64_t>() + 1)
    fail("{}: \"_step_count\" must be last_epoch + 1 = {}, found {}", kFile,
         last_epoch.get<std::int64_t>() + 1, saved["_step_count"].dump());

  base_lrs_ = base_lrs;
  last_epoch_ = last_epoch.get<std::int64_t>();
  for (std::size_t i = 0; i < rates.size(); ++i) {
    optimizer_->groups()[i].initial_lr = base_lrs[i];
    optimizer_->groups()[i].lr = rates[i];
  }
}

}  // namespace lerobot::optim
