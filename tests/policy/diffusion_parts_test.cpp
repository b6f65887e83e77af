// Noise, embeddings, key points and crops against tables that diffusers, torch and LeRobot made.
#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/policy/diffusion_oracle.h"

namespace lerobot::policy {
namespace {

const serialization::SafetensorsFile& tables() {
  static const serialization::SafetensorsFile file(oracle("diffusion_misc.safetensors"));
  return file;
}

Json numbers() { return read_json_file(oracle("diffusion_misc.json")); }

TEST(NoiseSchedule, HasDiffusersBetasBitForBit) {
  int compared = 0;
  for (const std::string& name : tables().names()) {
    const auto end = name.find("/betas");
    if (end == std::string::npos) continue;
    const auto number = name.rfind('_', end);
    DiffusionConfig config;
    config.beta_schedule = name.substr(0, number);
    config.num_train_timesteps = std::stoll(name.substr(number + 1, end - number - 1));
    const NoiseSchedule schedule(config);
    EXPECT_TRUE(schedule.betas().equal(tables().tensor(name))) << name;
    EXPECT_TRUE(
        schedule.alpha_bars().equal(tables().tensor(name.substr(0, end) + "/alphas_cumprod")))
        << name;
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

TEST(NoiseSchedule, VisitsDiffusersSteps) {
  const Json expected = numbers()["timesteps"];
  for (const auto& [name, steps] : expected.items()) {
    const auto slash = name.find('/');
    DiffusionConfig config;
    config.num_train_timesteps = std::stoll(name.substr(0, slash));
    EXPECT_EQ(NoiseSchedule(config).inference_steps(std::stoll(name.substr(slash + 1))),
              steps.get<std::vector<std::int64_t>>())
        << name;
  }
}

TEST(NoiseSchedule, TakesDiffusersStepsBitForBit) {
  const at::Tensor sample = tables().tensor("step/sample");
  const at::Tensor output = tables().tensor("step/model_output");
  const at::Tensor noise = tables().tensor("step/noise");
  int compared = 0;
  for (const std::string& name : tables().names()) {
    if (!name.starts_with("step/d")) continue;  // step/ddpm/epsilon/clip0.5/n10/t90
    std::vector<std::string> parts;
    std::istringstream stream(name);
    for (std::string part; std::getline(stream, part, '/');) parts.push_back(part);
    DiffusionConfig config;
    config.noise_scheduler_type = parts[1] == "ddpm" ? "DDPM" : "DDIM";
    config.prediction_type = parts[2];
    config.clip_sample = parts[3] != "clipNone";
    if (config.clip_sample) config.clip_sample_range = std::stod(parts[3].substr(4));
    const NoiseSchedule schedule(config);
    const auto [mean, deviation] = schedule.denoise(sample, output, std::stoll(parts[5].substr(1)),
                                                    std::stoll(parts[4].substr(1)));
    const at::Tensor next = deviation == 0 ? mean : mean + deviation * noise;
    EXPECT_TRUE(next.equal(tables().tensor(name))) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 96);
}

TEST(StepEmbedding, IsLeRobots) {
  const at::Tensor steps = at::arange(100, at::kLong);
  for (const std::int64_t size : {16, 128})
    EXPECT_TRUE(step_embedding(steps, size)
                    .equal(tables().tensor("step_embedding_" + std::to_string(size))))
        << size;
}

TEST(SpatialSoftmax, FindsTheExpectedPositionOfEachKeypoint) {
  SpatialSoftmax softmax(5, 3, 4, 6);
  const c10::AutoGradMode no_grad(false);
  for (auto& [name, tensor] : softmax.state_dict()) {
    if (name == "pos_grid")
      EXPECT_TRUE(tensor.equal(tables().tensor("spatial_softmax/pos_grid")));
    else
      tensor.copy_(tables().tensor("spatial_softmax/" + name.substr(5)));  // nets.weight
  }
  EXPECT_TRUE(softmax(tables().tensor("spatial_softmax/features"))
                  .allclose(tables().tensor("spatial_softmax/out"), 1e-6, 1e-6));
  const SpatialSoftmax large(1, 12, 10, 1);
  EXPECT_TRUE(large.state_dict().front().second.equal(tables().tensor("pos_grid_12x10")));
}

// --- What the backbone sees
// -----------------------------------------------------------------------

DiffusionConfig camera_config(std::int64_t height, std::int64_t width) {
  DiffusionConfig config;
  config.use_group_norm = true;
  config.pretrained_backbone_weights.reset();
  config.spatial_softmax_num_keypoints = 1;
  config.input_features = {
      {"observation.image", {config::FeatureType::kVisual, {3, height, width}}}};
  return config;
}

TEST(DiffusionImages, AreResizedAsTorchvisionDoes) {
  for (const auto& [height, width] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{12, 10}, {18, 7}, {5, 15}, {7, 9}}) {
    DiffusionConfig config = camera_config(12, 10);
    config.resize_shape = {height, width};
    const DiffusionRgbEncoder encoder(config, false);
    const std::string name = "resize/out_" + std::to_string(height) + "x" + std::to_string(width);
    EXPECT_TRUE(encoder.prepared(tables().tensor("resize/in_12x10")).equal(tables().tensor(name)))
        << name;
  }
}

/// Pixels that say where they come from: row in the first channel, column in the second.
at::Tensor places(std::int64_t height, std::int64_t width) {
  at::Tensor image = at::zeros({1, 3, height, width});
  image[0][0].copy_(at::arange(height, at::kFloat).unsqueeze(1).expand({height, width}));
  image[0][1].copy_(at::arange(width, at::kFloat).expand({height, width}));
  return image;
}

TEST(DiffusionImages, AreCroppedInTheMiddleOutsideOfTraining) {
  const Json expected = numbers()["center_crop_first_row"];
  for (const auto& [name, top] : expected.items()) {
    const std::int64_t from = std::stoll(name), to = std::stoll(name.substr(name.find('>') + 1));
    DiffusionConfig config = camera_config(from, from);
    config.crop_shape = {to, to};
    DiffusionRgbEncoder encoder(config, false);
    encoder.train(false);
    const at::Tensor cropped = encoder.prepared(places(from, from));
    EXPECT_EQ(cropped.sizes().vec(), (std::vector<std::int64_t>{1, 3, to, to}));
    for (const std::int64_t channel : {0, 1})
      EXPECT_EQ(cropped[0][channel][0][0].item<std::int64_t>(), top.get<std::int64_t>()) << name;
  }
}

TEST(DiffusionImages, AreCroppedAtOneRandomPlaceInTraining) {
  const Json expected = numbers()["random_crop_seed3"];
  for (const auto& [name, place] : expected.items()) {  // 96x96->84x84
    std::int64_t sizes[4];
    ASSERT_EQ(
        std::sscanf(name.c_str(), "%ldx%ld->%ldx%ld", &sizes[0], &sizes[1], &sizes[2], &sizes[3]),
        4);
    DiffusionConfig config = camera_config(sizes[0], sizes[1]);
    config.crop_shape = {sizes[2], sizes[3]};
    const DiffusionRgbEncoder encoder(config, false);
    seed_torch(3);
    const at::Tensor cropped = encoder.prepared(places(sizes[0], sizes[1]));
    EXPECT_EQ(cropped.sizes().vec(), (std::vector<std::int64_t>{1, 3, sizes[2], sizes[3]}));
    EXPECT_EQ(cropped[0][0][0][0].item<std::int64_t>(), place["top"].get<std::int64_t>()) << name;
    EXPECT_EQ(cropped[0][1][0][0].item<std::int64_t>(), place["left"].get<std::int64_t>()) << name;
    EXPECT_EQ(at::randint(0, 1000, {1}, at::kLong).item<std::int64_t>(),
              place["next_randint_1000"].get<std::int64_t>())
        << name;
  }
}

}  // namespace
}  // namespace lerobot::policy
