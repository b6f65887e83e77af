#include <gtest/gtest.h>

#include "lerobot/base/digest.h"
#include "tests/policy/act_oracle.h"

namespace lerobot::policy {
namespace {

class ActInitialWeights : public testing::TestWithParam<const char*> {};

TEST_P(ActInitialWeights, AreLeRobotsBitForBit) {
  const auto policy = oracle_policy(GetParam());
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

INSTANTIATE_TEST_SUITE_P(Oracles, ActInitialWeights,
                         testing::Values("act_base", "act_novae", "act_dropout"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ActInitialWeights, OfThePreNormVariantAreLeRobotsBitForBit) {
  const auto policy = oracle_policy("act_prenorm_env");
  const serialization::SafetensorsFile expected(oracle("act_prenorm_env") / "init.safetensors");
  const nn::NamedTensors state = policy->module().state_dict();
  EXPECT_EQ(state.size(), expected.names().size());
  for (const auto& [name, tensor] : state) EXPECT_TRUE(tensor.equal(expected.tensor(name))) << name;
}

// --- Names and order
// ------------------------------------------------------------------------------

config::FeatureMap features(std::initializer_list<config::FeatureMap::value_type> list) {
  return list;
}

std::unique_ptr<Policy> default_policy() {
  ActConfig config;
  config.input_features =
      features({{"observation.images.cam", {config::FeatureType::kVisual, {3, 96, 96}}},
                {"observation.state", {config::FeatureType::kState, {14}}}});
  config.output_features = features({{"action", {config::FeatureType::kAction, {14}}}});
  return make_policy(config, /*load_pretrained_backbone=*/false);
}

std::vector<std::int64_t> shape(const Json& json) { return json.get<std::vector<std::int64_t>>(); }

TEST(ActParameters, HaveLeRobotsNamesShapesAndOrder) {
  const auto policy = default_policy();
  const Json expected = read_json_file(oracle("act_default_params.json"));
  const nn::NamedTensors parameters = policy->module().named_parameters();
  ASSERT_EQ(parameters.size(), expected.size());
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(parameters[i].first, expected[i]["name"].get<std::string>());
    EXPECT_EQ(parameters[i].second.sizes().vec(), shape(expected[i]["shape"]))
        << parameters[i].first;
    elements += parameters[i].second.numel();
  }
  EXPECT_EQ(elements, 51'613'582);
}

TEST(ActParameters, HaveLeRobotsStateDictOrder) {
  const auto policy = default_policy();
  const Json expected = read_json_file(oracle("act_default_state_dict.json"));
  const nn::NamedTensors state = policy->module().state_dict();
  ASSERT_EQ(state.size(), expected.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].first, expected[i]["name"].get<std::string>());
    EXPECT_EQ(state[i].second.sizes().vec(), shape(expected[i]["shape"])) << state[i].first;
  }
}

TEST(ActParameters, AreNumberedForTheOptimizerAsInLeRobot) {
  const auto policy = default_policy();
  const Json expected = read_json_file(oracle("act_default_optimizer_index.json"));
  std::vector<std::string> names;
  const auto groups = policy->parameter_groups();
  ASSERT_EQ(groups.size(), 2);
  EXPECT_FALSE(groups[0].lr.has_value());
  EXPECT_EQ(groups[1].lr, 1e-5);
  for (const auto& group : groups)
    for (const auto& [name, parameter] : group.parameters) names.push_back(name);
  ASSERT_EQ(names.size(), expected.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(names[expected[i]["optimizer_index"].get<std::size_t>()],
              expected[i]["name"].get<std::string>());
}

}  // namespace
}  // namespace lerobot::policy
