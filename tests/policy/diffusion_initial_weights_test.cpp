#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "lerobot/base/digest.h"
#include "tests/policy/diffusion_oracle.h"

namespace lerobot::policy {
namespace {

void expect_next_draws(const std::string& name) {
  const Json meta = read_json_file(oracle(name) / "meta.json");
  const at::Tensor draws = at::randn({4});
  for (std::int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(draws[i].item<float>(),
              meta["randn4_after_init"][static_cast<std::size_t>(i)].get<float>());
}

class DiffusionInitialState : public testing::TestWithParam<const char*> {};

TEST_P(DiffusionInitialState, IsLeRobotsBitForBitWithTheStatisticsOfOneBlackImage) {
  const auto policy = oracle_policy(GetParam());
  expect_next_draws(GetParam());
  const Json expected = read_json_file(oracle(GetParam()) / "init.sha256.json");
  const nn::NamedTensors state = policy->module().state_dict();
  EXPECT_EQ(state.size(), expected.size());
  for (const auto& [name, tensor] : state) {
    ASSERT_TRUE(expected.contains(name)) << name;
    const at::Tensor values = tensor.detach().contiguous();
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(values.const_data_ptr()),
                          values.nbytes());
    EXPECT_EQ(sha256_hex(bytes), expected[name].get<std::string>()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Oracles, DiffusionInitialState,
                         testing::Values("diffusion_camera_gn", "diffusion_camera_bn",
                                         "diffusion_two_cameras", "diffusion_shared"),
                         [](const auto& info) { return std::string(info.param); });

class DiffusionInitialWeights : public testing::TestWithParam<const char*> {};

TEST_P(DiffusionInitialWeights, WithoutCamerasAreLeRobotsBitForBit) {
  const auto policy = oracle_policy(GetParam());
  expect_next_draws(GetParam());
  const serialization::SafetensorsFile expected(oracle(GetParam()) / "init.safetensors");
  const nn::NamedTensors state = policy->module().state_dict();
  EXPECT_EQ(state.size(), expected.names().size());
  for (const auto& [name, tensor] : state) EXPECT_TRUE(tensor.equal(expected.tensor(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(Oracles, DiffusionInitialWeights,
                         testing::Values("diffusion_env", "diffusion_env_alt"),
                         [](const auto& info) { return std::string(info.param); });

// --- Names and order
// ------------------------------------------------------------------------------

/// The default, but for its size: one camera of 96x96, two states and two actions.
const nn::Module& default_module() {
  static const auto policy = [] {
    DiffusionConfig config;
    config.input_features = {{"observation.image", {config::FeatureType::kVisual, {3, 96, 96}}},
                             {"observation.state", {config::FeatureType::kState, {2}}}};
    config.output_features = {{"action", {config::FeatureType::kAction, {2}}}};
    return make_policy(config, /*load_pretrained_backbone=*/false);
  }();
  return policy->module();
}

void expect_entries(const nn::NamedTensors& actual, const Json& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i]["name"].get<std::string>());
    EXPECT_EQ(actual[i].second.sizes().vec(), expected[i]["shape"].get<std::vector<std::int64_t>>())
        << actual[i].first;
  }
}

TEST(DiffusionParameters, HaveLeRobotsNamesShapesAndOrder) {
  const nn::NamedTensors parameters = default_module().named_parameters();
  expect_entries(parameters, read_json_file(oracle("diffusion_default_params.json")));
  std::int64_t elements = 0;
  for (const auto& [name, parameter] : parameters) elements += parameter.numel();
  EXPECT_EQ(elements, 262'709'026);
  expect_entries(default_module().state_dict(),
                 read_json_file(oracle("diffusion_default_state_dict.json")));
}

TEST(DiffusionParameters, AreOneGroupInTheirOwnOrder) {
  const auto policy = oracle_policy("diffusion_env");
  const auto groups = policy->parameter_groups();
  ASSERT_EQ(groups.size(), 1);
  EXPECT_FALSE(groups[0].lr.has_value());
  const nn::NamedTensors parameters = policy->module().named_parameters();
  ASSERT_EQ(groups[0].parameters.size(), parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_EQ(groups[0].parameters[i].first, parameters[i].first);
}

TEST(DiffusionModules, CarryTheClassNamesThatWrapUnitsAreChosenBy) {
  const auto policy = oracle_policy("diffusion_two_cameras");
  std::map<std::string, int> callable, all;
  for (const auto& [name, module] : policy->module().named_modules()) {
    ++all[module->class_name()];
    if (module->is_callable()) ++callable[module->class_name()];
  }
  EXPECT_EQ(callable["DiffusionConditionalResidualBlock1d"], 8);
  EXPECT_EQ(callable["DiffusionRgbEncoder"], 2);
  EXPECT_EQ(callable["BasicBlock"], 16);
  EXPECT_EQ(callable["SpatialSoftmax"], 2);
  EXPECT_EQ(callable["DiffusionConditionalUnet1d"], 1);
  EXPECT_EQ(callable["DiffusionConv1dBlock"], 17);
  EXPECT_EQ(callable["DiffusionModel"], 0);
  EXPECT_EQ(all["DiffusionModel"], 1);
  EXPECT_EQ(policy->wrap_modules(), (std::vector<std::string>{"DiffusionConditionalResidualBlock1d",
                                                              "DiffusionRgbEncoder"}));
}

}  // namespace
}  // namespace lerobot::policy
