#include "lerobot/policy/act/act_config.h"

#include <gmock/gmock.h>

#include "lerobot/config/command_line.h"
#include "lerobot/config/reflection.h"
#include "lerobot/policy/registry.h"
#include "tests/policy/act_oracle.h"

namespace lerobot::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ActConfig, IsWrittenAsLeRobotWroteIt) {
  for (const char* file : {"oracles/act_base/config.json", "oracles/act_prenorm_env/config.json",
                           "checkpoints/state_single/000040/pretrained_model/config.json"}) {
    const auto path = std::filesystem::path(LEROBOT_TEST_DATA) / file;
    const auto config = config::read_policy_config(path, policy_types());
    EXPECT_EQ(to_python_json(config::to_json(*config, policy_types()), 4),
              to_python_json(read_json_file(path), 4))
        << file;
    EXPECT_THAT(config->validate(), IsEmpty()) << file;
  }
}

TEST(ActConfig, HasValidDefaultsAndHelpForEveryField) {
  EXPECT_THAT(ActConfig{}.validate(), IsEmpty());
  const ActConfig config;
  config::for_each_member(config, [](std::string_view member, const auto&, const auto& help) {
    EXPECT_FALSE(help.text.empty()) << member;
  });
}

TEST(ActConfig, AsksForOneObservationAndAChunkOfActions) {
  ActConfig config;
  config.chunk_size = 3;
  EXPECT_THAT(config.delta_indices().action, ElementsAre(0, 1, 2));
  EXPECT_THAT(config.delta_indices().observation, IsEmpty());
  EXPECT_THAT(config.delta_indices().image, IsEmpty());
  EXPECT_EQ(config.drop_last_frames(), 0);
  const auto preset = std::get<config::AdamWConfig>(config.optimizer_preset());
  EXPECT_EQ(preset.lr, 1e-5);
  EXPECT_EQ(preset.weight_decay, 1e-4);
  EXPECT_EQ(preset.grad_clip_norm, 10.0);
  EXPECT_FALSE(config.scheduler_preset().has_value());
}

template <class Change>
std::vector<std::string> problems_after(Change change) {
  ActConfig config;
  change(config);
  return config.validate();
}

TEST(ActConfig, NamesTheOptionOfEveryBrokenRule) {
  EXPECT_THAT(problems_after([](ActConfig& c) { c.n_obs_steps = 2; }),
              ElementsAre(HasSubstr("policy.n_obs_steps: ACT looks at one observation only")));
  EXPECT_THAT(problems_after([](ActConfig& c) { c.chunk_size = 10; }),
              ElementsAre(HasSubstr("policy.n_action_steps: at most policy.chunk_size (10)")));
  EXPECT_THAT(problems_after([](ActConfig& c) { c.temporal_ensemble_coeff = 0.01; }),
              ElementsAre(HasSubstr("policy.n_action_steps: must be 1 with")));
  EXPECT_THAT(problems_after([](ActConfig& c) { c.vision_backbone = "vgg16"; }),
              ElementsAre(HasSubstr("policy.vision_backbone: expected resnet18")));
  EXPECT_THAT(problems_after([](ActConfig& c) { c.replace_final_stride_with_dilation = true; }),
              ElementsAre(HasSubstr("policy.replace_final_stride_with_dilation: resnet18")));
  EXPECT_THAT(problems_after([](ActConfig& c) { c.vision_backbone = "resnet34"; }),
              ElementsAre(HasSubstr("policy.pretrained_backbone_weights: resnet34 has no weights "
                                    "called ResNet18_Weights.IMAGENET1K_V1; expected "
                                    "ResNet34_Weights.IMAGENET1K_V1, or null")));
  EXPECT_THAT(
      problems_after([](ActConfig& c) { c.n_heads = 7; }),
      ElementsAre(HasSubstr("policy.n_heads: must divide policy.dim_model (512), found 7")));
  EXPECT_THAT(problems_after([](ActConfig& c) { c.feedforward_activation = "glu"; }),
              ElementsAre(HasSubstr("policy.feedforward_activation: glu halves the width")));
  EXPECT_THAT(problems_after([](ActConfig& c) {
                c.normalization_mapping = {{"TOUCH", config::NormalizationMode::kMinMax}};
              }),
              ElementsAre(HasSubstr("policy.normalization_mapping: unknown feature type TOUCH")));
}

TEST(ActConfig, NamesFeaturesThatItCannotUse) {
  using config::FeatureType;
  ActConfig config;
  config.input_features = {{"observation.state", {FeatureType::kState, {4}}}};
  config.output_features = {{"action.arm", {FeatureType::kAction, {3}}}};
  EXPECT_THAT(config.validate(),
              ElementsAre(HasSubstr("needs at least one camera or observation.environment_state"),
                          HasSubstr("needs an output named action")));
  config.input_features = {{"observation.state", {FeatureType::kState, {4, 2}}},
                           {"observation.images.depth", {FeatureType::kVisual, {1, 96, 96}}}};
  config.output_features = {{"action", {FeatureType::kAction, {3}}}};
  EXPECT_THAT(config.validate(),
              ElementsAre(HasSubstr("observation.state must be a vector, found shape [4, 2]"),
                          HasSubstr("camera observation.images.depth must have 3 channels")));
  config.input_features = {{"observation.images.front", {FeatureType::kVisual, {3, 96, 96}}}};
  config.dim_model = 6;
  config.n_heads = 2;
  EXPECT_THAT(config.validate(),
              ElementsAre(HasSubstr("policy.dim_model: must be a multiple of 4 with cameras")));
}

}  // namespace
}  // namespace lerobot::policy
