#include "lerobot/nn/conv1d.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace lerobot::nn {
namespace {

template <class Convolution>
void set(Convolution& convolution, const std::vector<float>& weight) {
  const c10::AutoGradMode no_grad(false);
  convolution.weight.copy_(at::tensor(weight).view(convolution.weight.sizes()));
  convolution.bias.zero_();
}

TEST(Conv1d, WeighsWhatLiesAroundEachMoment) {
  Conv1d convolution(1, 1, {.kernel = 3, .padding = 1});
  set(convolution, {1, 10, 100});
  const at::Tensor x = at::tensor({1.F, 2.F, 3.F, 4.F}).view({1, 1, 4});
  EXPECT_TRUE(convolution(x).view({4}).equal(at::tensor({210.F, 321.F, 432.F, 43.F})));
  Conv1d halving(1, 1, {.kernel = 3, .stride = 2, .padding = 1});
  set(halving, {1, 10, 100});
  EXPECT_TRUE(halving(x).view({2}).equal(at::tensor({210.F, 432.F})));
}

TEST(ConvTranspose1d, DoublesTheLength) {
  ConvTranspose1d convolution(1, 1, {.kernel = 4, .stride = 2, .padding = 1});
  set(convolution, {1, 10, 100, 1000});
  const at::Tensor x = at::tensor({1.F, 2.F}).view({1, 1, 2});
  EXPECT_TRUE(convolution(x).view({4}).equal(at::tensor({10.F, 102.F, 1020.F, 200.F})));
}

TEST(Convolutions, DrawWithinTheBoundOfTheirFan) {
  const Conv1d plain(6, 4, {.kernel = 5});
  const ConvTranspose1d transposed(6, 4, {.kernel = 5});
  EXPECT_EQ(plain.weight.sizes().vec(), (std::vector<std::int64_t>{4, 6, 5}));
  EXPECT_EQ(transposed.weight.sizes().vec(), (std::vector<std::int64_t>{6, 4, 5}));
  EXPECT_LE(plain.weight.abs().max().item<double>(), 1 / std::sqrt(30.0));
  EXPECT_GT(transposed.weight.abs().max().item<double>(), 1 / std::sqrt(30.0));  // the fan is 4 * 5
  EXPECT_LE(transposed.bias.abs().max().item<double>(), 1 / std::sqrt(20.0));
}

}  // namespace
}  // namespace lerobot::nn
