#include "lerobot/nn/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace lerobot::nn {
namespace {

at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

void seed(std::uint64_t value) {
  at::Generator ours = generator();
  ours.set_current_seed(value);
}

class DropoutSize : public testing::TestWithParam<std::int64_t> {};

TEST_P(DropoutSize, DropsWhatTorchDropsAndLeavesTheGeneratorWhereTorchDoes) {
  const at::Tensor x = at::randn({GetParam()});
  for (double p : {0.1, 0.5, 0.93}) {
    seed(17);
    at::rand({1});  // an odd number of words: pairs of words cross the generator's blocks
    const at::Tensor expected = at::dropout(x, p, true);
    const at::Tensor state = generator().get_state();
    seed(17);
    at::rand({1});
    EXPECT_TRUE(dropout(x, p).equal(expected));
    EXPECT_TRUE(generator().get_state().equal(state));
  }
}

INSTANTIATE_TEST_SUITE_P(AroundTheGeneratorsBlocks, DropoutSize,
                         testing::Values(1, 2, 311, 312, 313, 624, 1000, 100'000));

TEST(Dropout, OfTheFirstRowsUsesTheDrawsOfTheWhole) {
  const at::Tensor whole = at::ones({4, 6, 10});
  seed(1);
  const at::Tensor expected = at::dropout(whole, 0.4, true);
  const at::Tensor state = generator().get_state();
  seed(1);
  const at::Tensor first = whole.narrow(1, 0, 2);
  EXPECT_TRUE(dropout(first, 0.4, {4, 60}).equal(expected.narrow(1, 0, 2)));
  EXPECT_TRUE(generator().get_state().equal(state));
}

TEST(Dropout, HasTorchsGradients) {
  const auto leaf = [] { return at::randn({5, 33}).set_requires_grad(true); };
  const at::Tensor x = leaf();
  const at::Tensor residual = leaf();
  const at::Tensor weight = at::randn({5, 33});
  const auto check = [&](const at::Tensor& actual, const at::Tensor& expected, bool with_residual) {
    EXPECT_TRUE(actual.allclose(expected, 1e-6, 1e-7));
    (actual * weight).sum().backward();
    const at::Tensor dx = x.grad().clone();
    const at::Tensor dresidual = with_residual ? residual.grad().clone() : at::Tensor();
    x.mutable_grad().reset();
    residual.mutable_grad().reset();
    (expected * weight).sum().backward();
    EXPECT_TRUE(dx.allclose(x.grad(), 1e-6, 1e-7));
    if (with_residual) {
      EXPECT_TRUE(dresidual.equal(residual.grad()));
    }
    x.mutable_grad().reset();
    residual.mutable_grad().reset();
  };
  const auto both = [&](auto ours, auto theirs, bool with_residual) {
    seed(3);
    const at::Tensor actual = ours();
    seed(3);
    check(actual, theirs(), with_residual);
  };
  both([&] { return dropout(x, 0.3); }, [&] { return at::dropout(x, 0.3, true); }, false);
  both([&] { return dropout_add(residual, x, 0.3); },
       [&] { return residual + at::dropout(x, 0.3, true); }, true);
  both([&] { return relu_dropout(x * 1.0, 0.3); }, [&] { return at::dropout(x.relu(), 0.3, true); },
       false);
  both([&] { return relu_dropout(x * 1.0, 0.0); }, [&] { return x.relu(); }, false);
}

TEST(Dropout, OfHalfPrecisionDrawsTheSameElements) {
  const at::Tensor x = at::ones({100});
  seed(2);
  const at::Tensor full = dropout(x, 0.5);
  seed(2);
  const at::Tensor half = dropout(x.to(at::kBFloat16), 0.5);
  EXPECT_EQ(half.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(half.to(at::kFloat).equal(full));
}

TEST(Dropout, OfProbabilityZeroDrawsNothing) {
  seed(2);
  const at::Tensor state = generator().get_state();
  const at::Tensor x = at::ones({100});
  EXPECT_TRUE(dropout(x, 0.0).is_same(x));
  EXPECT_TRUE(generator().get_state().equal(state));
}

}  // namespace
}  // namespace lerobot::nn
