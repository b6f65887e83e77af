#include "lerobot/nn/resnet.h"

#include <filesystem>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "lerobot/base/digest.h"
#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/nn/frozen_batch_norm.h"

namespace lerobot::nn {
namespace {

Json oracle() {
  return read_json_file(std::filesystem::path(LEROBOT_TEST_DATA) / "oracles/resnet.json");
}

void seed(std::uint64_t value) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(value);
}

struct Case {
  const char* name;
  const char* variant;
  bool dilated;
};

class TorchvisionResNet : public testing::TestWithParam<Case> {};

TEST_P(TorchvisionResNet, HasTheSameWeightsOutputAndGradient) {
  const Json expected = oracle()[GetParam().name];
  seed(1000);
  ResNet model(*find_resnet(GetParam().variant), {.dilate_last_stage = GetParam().dilated});
  EXPECT_EQ(at::rand({1}).item<float>(), expected["next_random"].get<float>());

  const NamedTensors parameters = model.named_parameters();
  Sha256 hash;
  for (const auto& [name, parameter] : parameters)
    hash.update({static_cast<const std::uint8_t*>(parameter.const_data_ptr()),
                 static_cast<std::size_t>(parameter.nbytes())});
  EXPECT_EQ(hash.hex_digest(), expected["weights_sha256"].get<std::string>());
  for (std::size_t i = 0; i < expected["names"].size(); ++i)
    EXPECT_EQ(parameters[i].first, expected["names"][i].get<std::string>());
  EXPECT_EQ(model.state_dict().size(), expected["state_entries"].get<std::size_t>());

  const at::Tensor output = model(at::linspace(-1, 1, 3 * 64 * 96).view({1, 3, 64, 96}));
  EXPECT_EQ(output.sizes().vec(), expected["output_shape"].get<std::vector<std::int64_t>>());
  const double norm = expected["output_norm"].get<double>();
  EXPECT_NEAR(output.norm().item<double>(), norm, 1e-4 * norm);
  output.square().mean().backward();
  const double gradient = expected["first_gradient_norm"].get<double>();
  EXPECT_NEAR(parameters[0].second.grad().norm().item<double>(), gradient, 1e-4 * gradient);
}

INSTANTIATE_TEST_SUITE_P(Variants, TorchvisionResNet,
                         testing::Values(Case{"resnet18", "resnet18", false},
                                         Case{"resnet34", "resnet34", false},
                                         Case{"resnet50", "resnet50", false},
                                         Case{"resnet50_dilated", "resnet50", true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ResNet, RefusesDilationWhereBlocksHaveNone) {
  EXPECT_THROW(ResNet(*find_resnet("resnet18"), {.dilate_last_stage = true}), Error);
  EXPECT_EQ(find_resnet("resnet20"), nullptr);
}

// --- Frozen batch normalisation
// -------------------------------------------------------------------

struct NormCase {
  bool channels_last;
  bool residual;
  Activation activation;
};

class FrozenNorm : public testing::TestWithParam<NormCase> {};

TEST_P(FrozenNorm, InOnePassEqualsTheSeparateOperations) {
  const NormCase& c = GetParam();
  seed(3);
  FrozenBatchNorm2d norm(5);
  norm.weight.uniform_(0.5, 2);
  norm.bias.normal_();
  norm.running_mean.normal_();
  norm.running_var.uniform_(0.5, 2);
  const auto format =
      c.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const auto leaf = [&] {
    return at::randn({2, 5, 3, 4}).contiguous(format).set_requires_grad(true);
  };
  const at::Tensor x = leaf();
  const at::Tensor residual = leaf();
  const at::Tensor weight = at::randn({2, 5, 3, 4});

  const auto gradients = [&](const at::Tensor& y) {
    (y * weight).sum().backward();
    std::vector<at::Tensor> all{x.grad().clone()};
    if (c.residual) all.push_back(residual.grad().clone());
    x.mutable_grad().reset();
    residual.mutable_grad().reset();
    return all;
  };
  const at::Tensor fused = norm(x * 1.0, c.residual ? residual * 1.0 : at::Tensor(), c.activation);
  const at::Tensor scale = (norm.weight * (norm.running_var + 1e-5).rsqrt()).view({1, 5, 1, 1});
  at::Tensor expected =
      x * scale + norm.bias.view({1, 5, 1, 1}) - norm.running_mean.view({1, 5, 1, 1}) * scale;
  if (c.residual) expected = expected + residual;
  if (c.activation == Activation::kRelu) expected = expected.relu();
  EXPECT_TRUE(fused.allclose(expected, 1e-5, 1e-5));
  const auto actual_gradients = gradients(fused);
  const auto expected_gradients = gradients(expected);
  for (std::size_t i = 0; i < expected_gradients.size(); ++i)
    EXPECT_TRUE(actual_gradients[i].allclose(expected_gradients[i], 1e-5, 1e-6)) << i;
}

INSTANTIATE_TEST_SUITE_P(All, FrozenNorm,
                         testing::Values(NormCase{false, false, Activation::kNone},
                                         NormCase{false, false, Activation::kRelu},
                                         NormCase{false, true, Activation::kNone},
                                         NormCase{false, true, Activation::kRelu},
                                         NormCase{true, false, Activation::kNone},
                                         NormCase{true, false, Activation::kRelu},
                                         NormCase{true, true, Activation::kNone},
                                         NormCase{true, true, Activation::kRelu}));

}  // namespace
}  // namespace lerobot::nn
