// Expected numbers: torch.amp.GradScaler("cpu", ...) of torch 2.11 over the same gradients, by its
// public API (scale, unscale_, step of an SGD optimizer with lr=0.125 and update; state_dict).
#include "lerobot/optim/loss_scaler.h"

#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "tests/support/error_of.h"

namespace lerobot::optim {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr config::GradScalerConfig kQuick{
    .init_scale = 8, .growth_factor = 3, .backoff_factor = 0.25, .growth_interval = 2};

struct Update {
  std::vector<float> gradient;   // of the unscaled loss
  std::vector<float> parameter;  // after the update
  double scale;
  std::int64_t growth_tracker;
};

TEST(LossScaler, DoesWhatTorchsDoes) {
  const std::vector<Update> updates = {
      {{1, -2}, {0.875, 2.25}, 8, 1},         {{0.5, 0.25}, {0.8125, 2.21875}, 24, 0},
      {{kInf, 1}, {0.8125, 2.21875}, 6, 0},   {{1, 1}, {0.6875, 2.09375}, 6, 1},
      {{kNaN, 0}, {0.6875, 2.09375}, 1.5, 0}, {{0, 2}, {0.6875, 1.84375}, 1.5, 1},
      {{3, 1}, {0.3125, 1.71875}, 4.5, 0},    {{1, 0}, {0.1875, 1.71875}, 4.5, 1},
      {{-1, 1}, {0.3125, 1.59375}, 13.5, 0}};
  LossScaler scaler(kQuick, at::kCPU);
  at::Tensor parameter = at::tensor({1.0F, 2.0F}).requires_grad_(true);
  const at::Tensor unused = at::tensor({1.0F}).requires_grad_(true);
  for (const Update& update : updates) {
    parameter.mutable_grad() = at::Tensor();
    scaler.scale_loss((parameter * at::tensor(update.gradient)).sum()).backward();
    scaler.unscale({{"parameter", parameter}, {"unused", unused}});
    const bool finite = std::isfinite(update.gradient[0]);
    EXPECT_EQ(scaler.skips_update(), !finite);
    if (finite) {
      EXPECT_TRUE(parameter.grad().equal(at::tensor(update.gradient)));
      const at::NoGradGuard no_grad;
      parameter.sub_(parameter.grad() * 0.125);
    }
    scaler.update();
    EXPECT_TRUE(parameter.equal(at::tensor(update.parameter)));
    EXPECT_EQ(scaler.scale(), update.scale);
    EXPECT_EQ(scaler.state()["_growth_tracker"], update.growth_tracker);
  }
}

TEST(LossScaler, HasTorchsStateAndGoesOnFromIt) {
  LossScaler scaler({}, at::kCPU);
  EXPECT_EQ(scaler.state().dump(),
            R"({"scale":65536.0,"growth_factor":2.0,"backoff_factor":0.5,"growth_interval":2000,)"
            R"("_growth_tracker":0})");
  const Json state = {{"scale", 24.0},
                      {"growth_factor", 3.0},
                      {"backoff_factor", 0.25},
                      {"growth_interval", 2},
                      {"_growth_tracker", 1}};
  scaler.load_state(state);
  EXPECT_EQ(scaler.state(), state);
  scaler.unscale({});
  scaler.update();  // the second update without overflow
  EXPECT_EQ(scaler.scale(), 72.0);
}

TEST(LossScaler, SkipsWhenAnotherRankHasOverflown) {
  LossScaler scaler(kQuick, at::kCPU);
  scaler.unscale({});
  EXPECT_FALSE(scaler.skips_update());
  scaler.found_overflow().fill_(1);  // the maximum over the ranks
  EXPECT_TRUE(scaler.skips_update());
  scaler.update();
  EXPECT_EQ(scaler.scale(), 2.0);
}

TEST(LossScaler, RefusesAStateThatIsNone) {
  const Json good = LossScaler({}, at::kCPU).state();
  const auto error_with = [&](const char* key, const Json& value) {
    LossScaler scaler(kQuick, at::kCPU);
    Json state = good;
    if (value.is_null())
      state.erase(key);
    else
      state[key] = value;
    const std::string error = error_of([&] { scaler.load_state(state); });
    EXPECT_EQ(scaler.scale(), 8.0) << "it has changed";
    return error;
  };
  EXPECT_THAT(error_with("scale", nullptr), HasSubstr("has no \"scale\""));
  EXPECT_THAT(error_with("scale", "big"), HasSubstr("\"scale\": expected a number"));
  EXPECT_THAT(error_with("scale", 0.0), HasSubstr("expected a number above 0, found 0"));
  EXPECT_THAT(error_with("growth_factor", 1.0), HasSubstr("\"growth_factor\": expected a number"));
  EXPECT_THAT(error_with("backoff_factor", 1.0), HasSubstr("between 0 and 1, found 1"));
  EXPECT_THAT(error_with("growth_interval", 0), HasSubstr("an integer at least 1, found 0"));
  EXPECT_THAT(error_with("_growth_tracker", -1), HasSubstr("an integer at least 0, found -1"));
}

}  // namespace
}  // namespace lerobot::optim
