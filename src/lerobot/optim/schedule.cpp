#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/optim/scheduler.h"

namespace lerobot::optim {
namespace {

// Each formula keeps the order of Python's operations: the rates are equal bit for bit.

double at_least_one(std::int64_t value) {
  return static_cast<double>(std::max<std::int64_t>(1, value));
}

double ratio(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

/// 0 at the first step, 1 after `warmup` steps.
double warmup_factor(std::int64_t t, std::int64_t warmup) {
  return static_cast<double>(t) / at_least_one(warmup);
}

/// `cycles` half of them down and up again over the steps after the warm-up.
double cosine_factor(std::int64_t t, std::int64_t warmup, std::int64_t steps, double cycles) {
  const double progress = static_cast<double>(t - warmup) / at_least_one(steps - warmup);
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress)));
}

/// Wraps `after` (from the warm-up's end on) into a schedule with a linear warm-up.
Schedule with_warmup(std::int64_t warmup, Schedule after) {
  return [=](std::int64_t t) { return t < warmup ? warmup_factor(t, warmup) : after(t); };
}

void require_steps(std::int64_t value, const char* option) {
  if (value < 0) fail_usage("scheduler.{} must be at least 0, found {}", option, value);
}

struct ScheduleMaker {
  std::int64_t steps;
  double default_lr;

  Schedule operator()(const config::ConstantWithWarmupConfig& c) const {
    require_steps(c.num_warmup_steps, "num_warmup_steps");
    return with_warmup(c.num_warmup_steps, [](std::int64_t) { return 1.0; });
  }

  Schedule operator()(const config::CosineAnnealingWithWarmupConfig& c) const {
    require_steps(c.num_warmup_steps, "num_warmup_steps");
    return with_warmup(c.num_warmup_steps,
                       [warmup = c.num_warmup_steps, steps = steps](std::int64_t t) {
                         return cosine_factor(t, warmup, steps, 0.5);
                       });
  }

  Schedule operator()(const config::CosineDecayWithWarmupConfig& c) const {
    require_steps(c.num_warmup_steps, "num_warmup_steps");
    if (c.num_decay_steps < 1)
      fail_usage("scheduler.num_decay_steps must be at least 1, found {}", c.num_decay_steps);
    if (!(c.peak_lr > 0)) fail_usage("scheduler.peak_lr must be above 0, found {}", c.peak_lr);
    if (!(c.decay_lr >= 0))
      fail_usage("scheduler.decay_lr must be at least 0, found {}", c.decay_lr);
    std::int64_t warmup = c.num_warmup_steps, decay = c.num_decay_steps;
    if (steps < decay) {
      const double scale = ratio(steps, decay);
      warmup = static_cast<std::int64_t>(static_cast<double>(warmup) * scale);
      log::info(
          "Auto-scaling LR scheduler: num_training_steps ({}) < num_decay_steps ({}). "
          "Scaling warmup: {} → {}, decay: {} → {} (scale factor: {:.3f})",
          steps, decay, c.num_warmup_steps, warmup, decay, steps, scale);
      decay = steps;
    }
    const double floor = c.decay_lr / c.peak_lr;
    return [warmup, decay, floor](std::int64_t t) {
      if (t < warmup) {
        const double first = 1.0 / static_cast<double>(warmup + 1);
        return t <= 0 ? first : (first - 1.0) * (1.0 - ratio(t, warmup)) + 1.0;
      }
      const double angle =
          std::numbers::pi * static_cast<double>(std::min(t, decay)) / static_cast<double>(decay);
      return (1.0 - floor) * (0.5 * (1.0 + std::cos(angle))) + floor;
    };
  }

  Schedule operator()(const config::DiffuserSchedulerConfig& c) const {
    constexpr std::string_view kNames =
        "cosine, linear, constant, constant_with_warmup, cosine_with_restarts or polynomial";
    if (c.name == "constant") return [](std::int64_t) { return 1.0; };
    if (c.name == "piecewise_constant")
      fail_usage(
          "scheduler.name=piecewise_constant needs step rules, which LeRobot has no option for; "
          "expected {}",
          kNames);
    Schedule (ScheduleMaker::*make)(std::int64_t) const = nullptr;
    if (c.name == "cosine") make = &ScheduleMaker::cosine;
    if (c.name == "linear") make = &ScheduleMaker::linear;
    if (c.name == "constant_with_warmup") make = &ScheduleMaker::constant;
    if (c.name == "cosine_with_restarts") make = &ScheduleMaker::cosine_with_restarts;
    if (c.name == "polynomial") make = &ScheduleMaker::polynomial;
    if (!make) fail_usage("scheduler.name must be {}, found \"{}\"", kNames, c.name);
    if (!c.num_warmup_steps)
      fail_usage("scheduler.num_warmup_steps must be set for scheduler.name={} (0: no warm-up)",
                 c.name);
    require_steps(*c.num_warmup_steps, "num_warmup_steps");
    return with_warmup(*c.num_warmup_steps, (this->*make)(*c.num_warmup_steps));
  }

  Schedule operator()(const config::VqbetSchedulerConfig& c) const {
    require_steps(c.num_warmup_steps, "num_warmup_steps");
    require_steps(c.num_vqvae_training_steps, "num_vqvae_training_steps");
    const Schedule after =
        with_warmup(c.num_warmup_steps,
                    [warmup = c.num_warmup_steps, steps = steps, cycles = c.num_cycles](
                        std::int64_t t) { return cosine_factor(t, warmup, steps, cycles); });
    return [first = c.num_vqvae_training_steps, after](std::int64_t t) {
      return t < first ? 1.0 : after(t - first);
    };
  }

  // diffusers' schedules after a warm-up of `warmup` steps.

  Schedule constant(std::int64_t) const {
    return [](std::int64_t) { return 1.0; };
  }

  Schedule cosine(std::int64_t warmup) const {
    return [=, steps = steps](std::int64_t t) { return cosine_factor(t, warmup, steps, 0.5); };
  }

  Schedule linear(std::int64_t warmup) const {
    return [=, steps = steps](std::int64_t t) {
      return std::max(0.0, static_cast<double>(steps - t) / at_least_one(steps - warmup));
    };
  }

  Schedule cosine_with_restarts(std::int64_t warmup) const {
    return [=, steps = steps](std::int64_t t) {
      const double progress = static_cast<double>(t - warmup) / at_least_one(steps - warmup);
      if (progress >= 1.0) return 0.0;
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * std::fmod(progress, 1.0))));
    };
  }

  Schedule polynomial(std::int64_t warmup) const {
    constexpr double kEnd = 1e-7;
    if (!(default_lr > kEnd))
      fail_usage(
          "scheduler.name=polynomial ends at a rate of 1e-7: optimizer.lr must be above it, "
          "found {}",
          default_lr);
    return [=, steps = steps, lr = default_lr](std::int64_t t) {
      if (t > steps || steps == warmup) return kEnd / lr;
      const double remaining = 1.0 - ratio(t - warmup, steps - warmup);
      return ((lr - kEnd) * remaining + kEnd) / lr;
    };
  }
};

}  // namespace

Schedule make_schedule(const config::SchedulerConfig& config, std::int64_t steps,
                       double default_lr) {
  return std::visit(ScheduleMaker{steps, default_lr}, config);
}

}  // namespace lerobot::optim
