#include "lerobot/dataset/image_transforms.h"

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/dataset/image_operations.h"
#include "tests/dataset/safetensors_fixture.h"

namespace lerobot::dataset {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOracle = LEROBOT_TEST_DATA "/oracles/image_transforms";

Frames frames_of(at::Tensor& pixels) {
  const std::int64_t first = pixels.dim() - 3;
  return {pixels.mutable_data_ptr<std::uint8_t>(), first == 0 ? 1 : pixels.size(0),
          pixels.size(first), pixels.size(first + 1), pixels.size(first + 2)};
}

config::ImageTransformsConfig config_from(const Json& json) {
  config::ImageTransformsConfig config;
  config.enable = true;
  config.max_num_transforms = json["max_num_transforms"].get<std::int64_t>();
  config.random_order = json["random_order"].get<bool>();
  config.tfs.clear();
  for (const auto& [name, transform] : json["tfs"].items()) {
    config::ImageTransformConfig entry;
    entry.weight = transform["weight"].get<double>();
    entry.type = transform["type"].get<std::string>();
    entry.kwargs = transform["kwargs"];
    config.tfs.emplace_back(name, entry);
  }
  return config;
}

/// One transform named "x", always drawn.
config::ImageTransformsConfig one(const std::string& type, const Json& kwargs) {
  config::ImageTransformsConfig config;
  config.enable = true;
  config::ImageTransformConfig entry;
  entry.type = type;
  entry.kwargs = kwargs;
  config.tfs = {{"x", entry}};
  return config;
}

std::string refusal(const config::ImageTransformsConfig& config) {
  try {
    ImageTransforms transforms(config);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

/// Labels of "<prefix>/<label>" in the file.
std::vector<std::string> labels_of(const SafetensorsFixture& file, const std::string& prefix) {
  std::vector<std::string> labels;
  for (const auto& [name, tensor] : file)
    if (name.starts_with(prefix + "/")) labels.push_back(name.substr(prefix.size() + 1));
  return labels;
}

TEST(ImageOperations, PixelsAreThoseOfTorchvisionForTheSameFactors) {
  const SafetensorsFixture file = read_safetensors_fixture(std::string(kOracle) + ".safetensors");
  const Json oracle = read_json_file(std::string(kOracle) + ".json");
  const std::map<std::string, void (*)(const Frames&, double)> operations{
      {"brightness", adjust_brightness},
      {"contrast", adjust_contrast},
      {"saturation", adjust_saturation},
      {"hue", adjust_hue},
      {"sharpness", adjust_sharpness}};
  int compared = 0;
  for (const auto& [name, factors] : oracle["operations"].items())
    for (const Json& factor : factors) {
      const std::string prefix = name + "/" + factor.dump();
      for (const std::string& label : labels_of(file, prefix)) {
        at::Tensor pixels = file.at("image/" + label).clone();
        operations.at(name)(frames_of(pixels), factor.get<double>());
        EXPECT_TRUE(at::equal(pixels, file.at(prefix + "/" + label))) << prefix << " " << label;
        ++compared;
      }
    }
  EXPECT_EQ(compared, 25 * 4 + 11);
}

TEST(ImageOperations, AffineMapsAreThoseOfTorchvision) {
  const SafetensorsFixture file = read_safetensors_fixture(std::string(kOracle) + ".safetensors");
  const Json oracle = read_json_file(std::string(kOracle) + ".json");
  for (std::size_t n = 0; n < oracle["affine"].size(); ++n) {
    const Json& json = oracle["affine"][n];
    Affine parameters;
    parameters.angle = json["angle"].get<double>();
    parameters.translate = json["translate"].get<std::array<double, 2>>();
    parameters.scale = json["scale"].get<double>();
    parameters.shear = json["shear"].get<std::array<double, 2>>();
    if (json.contains("center")) parameters.center = json["center"].get<std::array<double, 2>>();
    if (json.contains("fill") && json["fill"].is_array())
      parameters.fill = json["fill"].get<std::vector<double>>();
    else if (json.contains("fill"))
      parameters.fill = {json["fill"].get<double>()};
    const std::string prefix = fmt::format("affine/{}", n);
    const auto labels = labels_of(file, prefix);
    EXPECT_GE(labels.size(), 3u);
    for (const std::string& label : labels) {
      at::Tensor pixels = file.at("image/" + label).clone();
      affine(frames_of(pixels), parameters);
      EXPECT_TRUE(at::equal(pixels, file.at(prefix + "/" + label))) << prefix << " " << label;
    }
  }
}

TEST(ImageTransforms, DrawsAndPixelsAreThoseOfLeRobotFromTheSameGenerator) {
  const SafetensorsFixture file = read_safetensors_fixture(std::string(kOracle) + ".safetensors");
  const Json oracle = read_json_file(std::string(kOracle) + ".json");
  ASSERT_EQ(oracle["pipelines"].size(), 5u);
  for (const auto& [name, json] : oracle["pipelines"].items()) {
    const ImageTransforms transforms(config_from(json));
    at::Generator generator = at::detail::createCPUGenerator(11);
    for (int call = 0; call < 4; ++call)
      for (const std::string label : {"noise", "smooth"}) {
        at::Tensor pixels = file.at("image/" + label).clone();
        transforms(pixels, generator);
        const std::string key = fmt::format("pipeline/{}/{}/{}", name, call, label);
        EXPECT_TRUE(at::equal(pixels, file.at(key))) << key;
      }
  }
}

TEST(ImageTransforms, AllFramesOfAWindowGetTheSameNumbers) {
  const ImageTransforms transforms(one("ColorJitter", {{"brightness", {0.2, 3.0}}}));
  const at::Tensor frame = at::randint(0, 256, {3, 5, 6}, at::kByte);
  at::Tensor window = at::stack({frame, frame, frame});
  at::Generator generator = at::detail::createCPUGenerator(1);
  transforms(window, generator);
  EXPECT_TRUE(at::equal(window[0], window[2]));
  EXPECT_FALSE(at::equal(window[0], frame));
}

TEST(ImageTransforms, NothingHappensWithoutEnableOrWithNothingToDraw) {
  const at::Tensor frame = at::randint(0, 256, {3, 5, 6}, at::kByte);
  config::ImageTransformsConfig off;
  config::ImageTransformsConfig none = one("ColorJitter", {{"brightness", 5}});
  none.max_num_transforms = 0;
  config::ImageTransformsConfig weightless = one("no such type", {});
  weightless.tfs[0].second.weight = 0;
  for (const auto& config : {off, none, weightless}) {
    const ImageTransforms transforms(config);
    at::Tensor pixels = frame.clone();
    at::Generator generator = at::detail::createCPUGenerator(1);
    transforms(pixels, generator);
    EXPECT_TRUE(at::equal(pixels, frame));
  }
}

TEST(ImageTransforms, CamerasWithOtherChannelsAreRefused) {
  at::Tensor pixels = at::ones({4, 5, 6}, at::kByte);
  at::Generator generator = at::detail::createCPUGenerator(1);
  try {
    ImageTransforms(one("ColorJitter", {{"brightness", 0.5}}))(pixels, generator);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("1 or 3 channels, found 4"));
  }
  at::Tensor gray = at::ones({1, 5, 6}, at::kByte);
  Json kwargs{{"degrees", 5}, {"fill", {1, 2, 3}}};
  EXPECT_THROW(ImageTransforms(one("RandomAffine", kwargs))(gray, generator), Error);
}

TEST(ImageTransforms, LeRobotsDefaultsAreAccepted) {
  config::ImageTransformsConfig config;
  config.enable = true;
  EXPECT_EQ(refusal(config), "no error");
}

TEST(ImageTransforms, MistakesAreUsageErrorsThatNameTheOption) {
  const std::string option = "dataset.image_transforms.tfs.x";
  const auto expect = [&](const std::string& type, const Json& kwargs, const std::string& text) {
    const std::string message = refusal(one(type, kwargs));
    EXPECT_THAT(message, HasSubstr(option));
    EXPECT_THAT(message, HasSubstr(text));
  };
  expect("Colorjitter", {}, "type must be ColorJitter");
  expect("GaussianNoise", {}, "changes nothing in training");
  expect("ColorJitter", {{"gamma", 1}},
         "kwargs.gamma: ColorJitter has no such keyword; expected "
         "brightness, contrast, saturation, hue");
  expect("ColorJitter", 3, "kwargs must be an object, found 3");
  expect("ColorJitter", {{"brightness", -1}}, "kwargs.brightness must be a number of at least 0");
  expect("ColorJitter", {{"contrast", {1.2, 0.8}}}, "found [1.2,0.8]");
  expect("ColorJitter", {{"contrast", {-0.1, 0.8}}}, "0 <= low <= high");
  expect("ColorJitter", {{"contrast", "much"}}, "found \"much\"");
  expect("ColorJitter", {{"saturation", {1.0, 2.0, 3.0}}}, "kwargs.saturation");
  expect("ColorJitter", {{"saturation", {1.0, "x"}}}, "kwargs.saturation");
  expect("ColorJitter", {{"hue", 0.6}}, "a number from 0 to 0.5");
  expect("ColorJitter", {{"hue", {-0.6, 0.1}}}, "-0.5 <= low <= high <= 0.5");
  expect("SharpnessJitter", Json::object(), "kwargs.sharpness is required");
  expect("SharpnessJitter", {{"sharpness", {-1, 1}}}, "kwargs.sharpness");
  expect("Identity", {{"sharpness", 1}}, "Identity takes no keywords");
  expect("RandomAffine", Json::object(), "kwargs.degrees is required");
  expect("RandomAffine", {{"degrees", -1}}, "kwargs.degrees must be a number of at least 0");
  expect("RandomAffine", {{"degrees", {1, 2, 3}}}, "a list of 2 numbers");
  expect("RandomAffine", {{"degrees", {5, -5}}}, "low before high");
  const auto affine_with = [](const char* key, const Json& value) {
    return Json{{"degrees", 5}, {key, value}};
  };
  expect("RandomAffine", affine_with("translate", {0.1, 1.1}), "two fractions from 0 to 1");
  expect("RandomAffine", affine_with("translate", 0.1), "two fractions from 0 to 1");
  expect("RandomAffine", affine_with("scale", {0, 1}), "[low, high] above 0");
  expect("RandomAffine", affine_with("scale", {2, 1}), "[low, high] above 0");
  expect("RandomAffine", affine_with("shear", {1, 2, 3}), "a list of 2 or 4 numbers");
  expect("RandomAffine", affine_with("interpolation", "bilinear"), "\"nearest\"");
  expect("RandomAffine", affine_with("fill", 256), "a level from 0 to 255");
  expect("RandomAffine", affine_with("fill", {1, 2}), "a level from 0 to 255");
  expect("RandomAffine", affine_with("center", {1}), "two numbers");

  auto config = one("Identity", {});
  config.max_num_transforms = -1;
  EXPECT_THAT(refusal(config), HasSubstr("max_num_transforms must be at least 0, found -1"));
  config = one("Identity", {});
  config.tfs[0].second.weight = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal(config), HasSubstr(option + ".weight must be finite"));
}

}  // namespace
}  // namespace lerobot::dataset
