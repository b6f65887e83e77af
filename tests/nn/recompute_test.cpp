#include "lerobot/nn/recompute.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "lerobot/nn/layers.h"

namespace lerobot::nn {
namespace {

/// Counts its calls.
class Layer final : public Callable<Layer> {
 public:
  Layer()
      : Callable("Layer"),
        first_(register_module("first", std::make_shared<Linear>(4, 8))),
        second_(register_module("second", std::make_shared<Linear>(8, 4))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    type = (*first_)(x).scalar_type();
    return (*second_)((*first_)(x).tanh());
  }
  int calls = 0;
  at::ScalarType type = at::kFloat;  // of an intermediate result, in the last call

 private:
  std::shared_ptr<Linear> first_;
  std::shared_ptr<Linear> second_;
};

at::Tensor recomputed(Layer& layer, const at::Tensor& x) {
  return recompute_in_backward(layer, {x},
                               [&](const std::vector<at::Tensor>& in) { return layer(in[0]); });
}

std::vector<at::Tensor> gradients_of(Layer& layer, const at::Tensor& x, bool recomputes) {
  const at::Tensor input = x.detach().set_requires_grad(true);
  const at::Tensor loss = (recomputes ? recomputed(layer, input) : layer(input)).square().sum();
  loss.backward();
  std::vector<at::Tensor> gradients{input.grad()};
  for (auto& [name, parameter] : layer.named_parameters()) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad().reset();
  }
  return gradients;
}

TEST(Recompute, GivesTheGradientsOfThePlainCall) {
  Layer layer;
  const at::Tensor x = at::randn({3, 4});
  const auto expected = gradients_of(layer, x, false);
  EXPECT_EQ(layer.calls, 1);
  const auto actual = gradients_of(layer, x, true);
  EXPECT_EQ(layer.calls, 3);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(actual[i].equal(expected[i])) << i;
}

TEST(Recompute, LeavesFrozenParametersWithoutGradients) {
  Layer layer;
  layer.named_parameters()[0].second.set_requires_grad(false);
  const auto gradients = gradients_of(layer, at::randn({3, 4}), true);
  EXPECT_FALSE(gradients[1].defined());
  EXPECT_TRUE(gradients[2].defined());
}

TEST(Recompute, IsThePlainCallWithoutGradients) {
  Layer layer;
  const c10::AutoGradMode no_grad(false);
  EXPECT_FALSE(recomputed(layer, at::randn({3, 4})).requires_grad());
  EXPECT_EQ(layer.calls, 1);
}

TEST(Recompute, ComputesInTheTypeOfTheFirstCall) {
  Layer layer;
  const at::Tensor x = at::randn({3, 4});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::increment_nesting();
  const at::Tensor output = recomputed(layer, x);
  EXPECT_EQ(layer.type, at::kBFloat16);
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  layer.type = at::kFloat;
  output.to(at::kFloat).sum().backward();
  EXPECT_EQ(layer.type, at::kBFloat16);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  for (const auto& [name, parameter] : layer.named_parameters())
    EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat) << name;
}

}  // namespace
}  // namespace lerobot::nn
