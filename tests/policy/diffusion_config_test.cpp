#include "lerobot/policy/diffusion/diffusion_config.h"

#include <limits>
#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/base/files.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/reflection.h"
#include "lerobot/policy/registry.h"
#include "tests/policy/diffusion_oracle.h"
#include "tests/support/error_of.h"

namespace lerobot::policy {
namespace {

using config::FeatureType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(DiffusionConfig, IsWrittenAsLeRobotWroteIt) {
  for (const char* file :
       {"oracles/diffusion_env/config.json", "oracles/diffusion_env_alt/config.json",
        "oracles/diffusion_camera_gn/config.json", "oracles/diffusion_camera_bn/config.json",
        "oracles/diffusion_two_cameras/config.json", "oracles/diffusion_shared/config.json",
        "checkpoints/diffusion_state/000020/pretrained_model/config.json",
        "checkpoints/diffusion_pusht/000020/pretrained_model/config.json"}) {
    const auto path = std::filesystem::path(LEROBOT_TEST_DATA) / file;
    const auto config = config::read_policy_config(path, policy_types());
    EXPECT_EQ(to_python_json(config::to_json(*config, policy_types()), 4), read_text_file(path))
        << file;
    EXPECT_THAT(config->validate(), IsEmpty()) << file;
  }
}

TEST(DiffusionConfig, HasValidDefaultsAndHelpForEveryField) {
  const DiffusionConfig config;
  EXPECT_THAT(config.validate(), IsEmpty());
  config::for_each_member(config, [](std::string_view member, const auto&, const auto& help) {
    EXPECT_FALSE(help.text.empty()) << member;
  });
}

TEST(DiffusionConfig, AsksForThePastObservationsAndActionsFromTheFirstOfThemOn) {
  DiffusionConfig config;
  config.n_obs_steps = 3;
  config.horizon = 8;
  EXPECT_THAT(config.delta_indices().observation, ElementsAre(-2, -1, 0));
  EXPECT_THAT(config.delta_indices().image, ElementsAre(-2, -1, 0));
  EXPECT_THAT(config.delta_indices().action, ElementsAre(-2, -1, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(config.delta_indices().reward, IsEmpty());
  EXPECT_EQ(config.drop_last_frames(), 7);
}

TEST(DiffusionConfig, HasLeRobotsPresets) {
  const DiffusionConfig config;
  const auto optimizer = std::get<config::AdamConfig>(config.optimizer_preset());
  EXPECT_EQ(optimizer.lr, 1e-4);
  EXPECT_EQ(optimizer.weight_decay, 1e-6);
  EXPECT_EQ(optimizer.grad_clip_norm, 10.0);
  EXPECT_THAT(optimizer.betas, ElementsAre(0.95, 0.999));
  EXPECT_EQ(optimizer.eps, 1e-8);
  const auto scheduler = std::get<config::DiffuserSchedulerConfig>(*config.scheduler_preset());
  EXPECT_EQ(scheduler.name, "cosine");
  EXPECT_EQ(scheduler.num_warmup_steps, 500);
}

TEST(DiffusionConfig, TakesTheCropFromTheResizedShape) {
  DiffusionConfig config;
  config.crop_shape = {10, 10};
  config.crop_ratio = 0.5;
  config.derive();
  EXPECT_THAT(*config.crop_shape, ElementsAre(10, 10));  // the ratio needs a resized shape
  config.resize_shape = {80, 88};
  config.crop_ratio = 0.9;
  config.derive();
  EXPECT_THAT(*config.crop_shape, ElementsAre(72, 79));
  config.crop_ratio = 1.0;
  config.derive();
  EXPECT_FALSE(config.crop_shape.has_value());
}

template <class Change>
std::vector<std::string> problems_after(Change change) {
  DiffusionConfig config;
  change(config);
  return config.validate();
}

TEST(DiffusionConfig, NamesTheOptionOfEveryBrokenRule) {
  using C = DiffusionConfig;
  const auto expect = [](auto change, const std::string& message) {
    EXPECT_THAT(problems_after(change), ElementsAre(HasSubstr(message)));
  };
  expect(
      [](C& c) { c.horizon = 20; },
      "policy.horizon: must be a multiple of 8 (2 for each of the 3 numbers in policy.down_dims");
  expect([](C& c) { c.n_obs_steps = 65; },
         "policy.n_obs_steps: a prediction of policy.horizon (64)");
  expect([](C& c) { c.down_dims = {}; }, "policy.down_dims: expected 1 to 16 numbers, found 0");
  expect(
      [](C& c) {
        c.down_dims = {512, 1020};
      },
      "policy.down_dims: every number must be a multiple of policy.n_groups (8), found 1020");
  expect(
      [](C& c) {
        c.n_groups = 4;
        c.down_dims = {12, 16};
      },
      "policy.down_dims: the first number must be a multiple of 8");
  expect([](C& c) { c.kernel_size = 4; }, "policy.kernel_size: must be odd");
  expect(
      [](C& c) { c.diffusion_step_embed_dim = 7; },
      "policy.diffusion_step_embed_dim: must be even (sines and cosines) and at least 4, found 7");
  expect([](C& c) { c.diffusion_step_embed_dim = 2; }, "at least 4, found 2");
  expect([](C& c) { c.compile_model = true; }, "policy.compile_model: there is no compiler here");
  expect([](C& c) { c.vision_backbone = "vit"; }, "policy.vision_backbone: expected resnet18");
  expect([](C& c) { c.vision_backbone = "resnet34"; },
         "policy.pretrained_backbone_weights: resnet34 has no weights called");
  expect([](C& c) { c.use_group_norm = true; },
         "policy.use_group_norm: the pretrained weights ResNet18_Weights.IMAGENET1K_V1 belong to "
         "batch normalisation");
  expect([](C& c) { c.resize_shape = {96}; },
         "policy.resize_shape: expected [height, width] with numbers above 0, found [96]");
  expect(
      [](C& c) {
        c.crop_shape = {84, 0};
      },
      "policy.crop_shape: expected [height, width] with numbers above 0, found [84, 0]");
  expect(
      [](C& c) {
        c.resize_shape = {2, 96};
        c.crop_ratio = 0.1;
        c.derive();
      },
      "policy.crop_ratio: 0.1 of the resized shape [2, 96] leaves no pixels");
  expect(
      [](C& c) {
        c.noise_scheduler_type = "DDIM";
        c.beta_schedule = "laplace";
      },
      "policy.beta_schedule: laplace needs policy.noise_scheduler_type=DDPM");
  expect(
      [](C& c) { c.num_inference_steps = 101; },
      "policy.num_inference_steps: expected 1 to policy.num_train_timesteps (100) or null, found "
      "101");
  expect([](C& c) { c.optimizer_betas = {0.9}; }, "policy.optimizer_betas: expected two numbers");
  expect(
      [](C& c) {
        c.normalization_mapping = {{"TOUCH", config::NormalizationMode::kMinMax}};
      },
      "policy.normalization_mapping: unknown feature type TOUCH");
}

TEST(DiffusionConfig, SurvivesNumbersThatNoNetworkCanHave) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  using C = DiffusionConfig;
  for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{0}, kHuge, -kHuge}) {
    const std::vector<void (*)(C&, std::int64_t)> changes{
        [](C& c, std::int64_t n) { c.horizon = n; },
        [](C& c, std::int64_t n) { c.n_obs_steps = n; },
        [](C& c, std::int64_t n) {
          c.down_dims = {n, n};
        },
        [](C& c, std::int64_t n) { c.down_dims.assign(30, n); },
        [](C& c, std::int64_t n) { c.n_groups = n; },
        [](C& c, std::int64_t n) { c.kernel_size = n; },
        [](C& c, std::int64_t n) { c.diffusion_step_embed_dim = n; },
        [](C& c, std::int64_t n) { c.spatial_softmax_num_keypoints = n; },
        [](C& c, std::int64_t n) { c.num_inference_steps = n; },
        [](C& c, std::int64_t n) {
          c.resize_shape = {n, n}, c.crop_ratio = 0.5;
        },
        [](C& c, std::int64_t n) {
          c.crop_shape = {n, n};
        },
        [](C& c, std::int64_t n) {
          c.input_features[0].second.shape = {3, n, n};
        },
        [](C& c, std::int64_t n) { c.input_features[1].second.shape = {n}; },
        [](C& c, std::int64_t n) { c.output_features[0].second.shape = {n}; }};
    for (std::size_t i = 0; i < changes.size(); ++i) {
      DiffusionConfig config;
      config.input_features = {{"observation.image", {FeatureType::kVisual, {3, 96, 96}}},
                               {"observation.state", {FeatureType::kState, {2}}}};
      config.output_features = {{"action", {FeatureType::kAction, {2}}}};
      ASSERT_THAT(config.validate(), IsEmpty());
      changes[i](config, number);
      config.derive();
      // The limits of single options are checked beside the rules that join several.
      std::vector<config::Problem> limits;
      config::find_policy_type(policy_types(), "diffusion")->check(limits, "policy", config);
      const bool harmless = i == 1 && number < 1;  // the limit of a field that all policies have
      EXPECT_TRUE(harmless || !limits.empty() || !config.validate().empty())
          << "change " << i << " to " << number;
    }
  }
}

TEST(DiffusionConfig, NamesFeaturesThatItCannotUse) {
  DiffusionConfig config;
  config.input_features = {{"observation.joints", {FeatureType::kState, {4}}}};
  config.output_features = {{"action.arm", {FeatureType::kAction, {3}}}};
  EXPECT_THAT(config.validate(),
              ElementsAre(HasSubstr("needs an input named observation.state"),
                          HasSubstr("needs at least one camera or observation.environment_state"),
                          HasSubstr("needs an output named action")));
  config.output_features = {{"action", {FeatureType::kAction, {3}}}};
  const auto with_cameras = [&](std::vector<std::int64_t> front, std::vector<std::int64_t> wrist) {
    config.input_features = {{"observation.state", {FeatureType::kState, {4}}},
                             {"observation.images.front", {FeatureType::kVisual, front}},
                             {"observation.images.wrist", {FeatureType::kVisual, wrist}}};
    return config.validate();
  };
  EXPECT_THAT(with_cameras({3, 96, 96}, {3, 96, 96}), IsEmpty());
  EXPECT_THAT(with_cameras({1, 96, 96}, {3, 96, 96}),
              ElementsAre(HasSubstr("camera observation.images.front must have 3 channels")));
  EXPECT_THAT(with_cameras({3, 96, 96}, {3, 64, 96}),
              ElementsAre(HasSubstr("all cameras must have one shape, found "
                                    "observation.images.front [3, 96, 96] and "
                                    "observation.images.wrist [3, 64, 96]")));
  EXPECT_THAT(with_cameras({3, 32, 32}, {3, 32, 32}),
              ElementsAre(HasSubstr("policy.use_group_norm: images of 32x32 become a map of one "
                                    "pixel")));
  EXPECT_THAT(with_cameras({3, 33, 32}, {3, 33, 32}), IsEmpty());
  config.crop_shape = {90, 100};
  EXPECT_THAT(with_cameras({3, 96, 96}, {3, 96, 96}),
              Contains(HasSubstr("policy.crop_shape: [90, 100] is larger than the images of "
                                 "observation.images.front [96, 96]")));
  config.crop_shape.reset();
  config.down_dims = {1 << 19, 1 << 19};
  EXPECT_THAT(with_cameras({3, 96, 96}, {3, 96, 96}),
              ElementsAre(AllOf(HasSubstr("this network would have about"),
                                HasSubstr("at most 1e+11 are possible"))));
}

TEST(DiffusionConfig, OfACompiledModelIsReadWithoutTheCompilersNames) {
  const auto policy = oracle_policy("diffusion_env");
  serialization::NamedTensors saved;
  for (const auto& [name, tensor] : policy->module().state_dict()) {
    std::string compiled = name;
    compiled.insert(std::string("diffusion.unet").size(), "._orig_mod");
    saved.emplace_back(compiled, tensor.detach());
  }
  const fs::path file =
      fs::temp_directory_path() / fmt::format("compiled.{}.safetensors", ::getpid());
  serialization::save_safetensors(file, saved);
  const auto config =
      config::read_policy_config(oracle("diffusion_env") / "config.json", policy_types());
  seed_torch(1);
  const auto other = make_policy(*config, false);
  testing::internal::CaptureStderr();
  load_policy_weights(*other, file);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  fs::remove(file);
  const nn::NamedTensors expected = policy->module().state_dict();
  const nn::NamedTensors actual = other->module().state_dict();
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(actual[i].second.equal(expected[i].second)) << expected[i].first;
}

TEST(DiffusionConfig, CannotMakeAPolicyWhenItIsBroken) {
  DiffusionConfig config;
  config.horizon = 20;
  EXPECT_THAT(error_of([&] { DiffusionPolicy(config, false); }), HasSubstr("policy.horizon"));
}

}  // namespace
}  // namespace lerobot::policy
