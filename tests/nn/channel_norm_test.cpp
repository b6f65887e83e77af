#include "lerobot/nn/channel_norm.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "lerobot/nn/resnet.h"

namespace lerobot::nn {
namespace {

constexpr double kEps = 1e-5;

void seed(std::uint64_t value) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(value);
}

/// x with each of `rows` (n, elements) shifted to mean 0 and scaled to variance 1.
at::Tensor standardised(const at::Tensor& rows) {
  const at::Tensor mean = rows.mean(1, /*keepdim=*/true);
  return (rows - mean) / ((rows - mean).square().mean(1, true) + kEps).sqrt();
}

TEST(BatchNorm2d, TakesItsStatisticsFromTheBatchAndATenthOfThemIntoTheRunningOnes) {
  seed(3);
  BatchNorm2d norm(5);
  const at::Tensor x = at::randn({2, 5, 3, 4}) * 2.0 + 1.0;
  const at::Tensor by_channel = x.transpose(0, 1).flatten(1);
  const at::Tensor y = norm(x.clone());
  EXPECT_TRUE(y.transpose(0, 1).flatten(1).allclose(standardised(by_channel), 1e-5, 1e-5));
  EXPECT_TRUE(norm.running_mean.allclose(by_channel.mean(1) * 0.1, 1e-5, 1e-6));
  EXPECT_TRUE(
      norm.running_var.allclose(by_channel.var(1, /*unbiased=*/true) * 0.1 + 0.9, 1e-5, 1e-6));
  EXPECT_EQ(norm.num_batches_tracked.item<std::int64_t>(), 1);
  EXPECT_FALSE(norm.running_mean.requires_grad());
}

TEST(BatchNorm2d, UsesTheRunningStatisticsInEvaluationAndLeavesThem) {
  seed(3);
  BatchNorm2d norm(5);
  norm(at::randn({2, 5, 3, 4}));
  const at::Tensor mean = norm.running_mean.clone();
  const at::Tensor variance = norm.running_var.clone();
  norm.train(false);
  const at::Tensor x = at::randn({2, 5, 3, 4});
  const at::Tensor expected =
      (x - mean.view({1, 5, 1, 1})) / (variance.view({1, 5, 1, 1}) + kEps).sqrt();
  EXPECT_TRUE(norm(x.clone()).allclose(expected, 1e-5, 1e-5));
  EXPECT_TRUE(norm.running_mean.equal(mean));
  EXPECT_TRUE(norm.running_var.equal(variance));
  EXPECT_EQ(norm.num_batches_tracked.item<std::int64_t>(), 1);
}

TEST(BatchNorm2d, TellsWhichOfItsBuffersTrainingChanges) {
  const BatchNorm2d norm(3);
  EXPECT_EQ(norm.running_buffers().size(), 3);
  const ResNet batch(*find_resnet("resnet18"), {.norm = ResNetNorm::kBatch});
  EXPECT_EQ(batch.running_buffers().size(), 60);
  EXPECT_EQ(batch.named_buffers().size(), 60);
  const ResNet frozen(*find_resnet("resnet18"), {});
  EXPECT_TRUE(frozen.running_buffers().empty());
  EXPECT_FALSE(frozen.named_buffers().empty());
}

TEST(GroupNorm, StandardisesEachSamplesGroupsOfChannels) {
  seed(3);
  GroupNorm norm(3, 6);
  const at::Tensor x = at::randn({4, 6, 5}) * 3.0 + 1.0;
  const at::Tensor expected = standardised(x.view({12, 10})).view({4, 6, 5});
  EXPECT_TRUE(norm(x.clone()).allclose(expected, 1e-5, 1e-5));
  EXPECT_TRUE(norm.running_buffers().empty());
}

TEST(ChannelNorms, AddAResidualAndThenCutOffWhatIsNegative) {
  seed(3);
  GroupNorm group(2, 6);
  BatchNorm2d batch(6);
  for (ChannelNorm* norm : {static_cast<ChannelNorm*>(&group), static_cast<ChannelNorm*>(&batch)}) {
    const at::Tensor x = at::randn({2, 6, 3, 3});
    const at::Tensor residual = at::randn({2, 6, 3, 3}).set_requires_grad(true);
    const at::Tensor expected = ((*norm)(x.clone()) + residual).relu();
    EXPECT_TRUE((*norm)(x.clone(), residual, Activation::kRelu).equal(expected));
    EXPECT_TRUE(residual.is_leaf());  // only x's memory is reused
  }
}

TEST(ResNet, HasItsModulesUnderTorchvisionsNamesOrTheirPlaces) {
  seed(3);
  const ResNet named(*find_resnet("resnet18"), {.norm = ResNetNorm::kBatch});
  seed(3);
  const ResNet placed(*find_resnet("resnet18"),
                      {.norm = ResNetNorm::kBatch, .names = ResNetNames::kPlaces});
  const NamedTensors expected = named.state_dict();
  const NamedTensors actual = placed.torchvision_state();
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    EXPECT_TRUE(actual[i].second.equal(expected[i].second)) << expected[i].first;
  }
  EXPECT_EQ(placed.state_dict().front().first, "0.weight");
  EXPECT_EQ(placed.state_dict().back().first, "7.1.bn2.num_batches_tracked");
}

}  // namespace
}  // namespace lerobot::nn
