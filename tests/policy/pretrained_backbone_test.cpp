#include "lerobot/policy/pretrained_backbone.h"

#include <cstdlib>
#include <map>
#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/policy/diffusion/diffusion_encoder.h"
#include "lerobot/serialization/safetensors.h"
#include "tests/support/error_of.h"

namespace lerobot::policy {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PretrainedBackbone : public testing::Test {
 protected:
  PretrainedBackbone() {
    ::setenv("TORCH_HOME", home_.c_str(), 1);
    ::setenv("HF_HUB_OFFLINE", "1", 1);
    fs::create_directories(torch_checkpoint_directory());
  }
  ~PretrainedBackbone() override {
    fs::remove_all(home_);
    ::unsetenv("TORCH_HOME");
    ::unsetenv("HF_HUB_OFFLINE");
  }

  std::string load_error() {
    return error_of([&] { load_backbone_weights(model_, "resnet18", "IMAGENET1K_V1"); });
  }

  const fs::path home_ = fs::temp_directory_path() / fmt::format("torch_home.{}", ::getpid());
  nn::ResNet model_{*nn::find_resnet("resnet18"), nn::ResNetOptions{}};
};

TEST_F(PretrainedBackbone, ComesFromTheTorchCache) {
  const nn::ResNet source(*nn::find_resnet("resnet18"), {});
  serialization::NamedTensors saved = source.state_dict();
  for (auto& [name, tensor] : saved) tensor = tensor.detach() + 1.0;
  saved.emplace_back("fc.weight", at::zeros({1000, 512}));
  serialization::save_safetensors(torch_checkpoint_directory() / "resnet18-f37072fd.safetensors",
                                  saved);

  load_backbone_weights(model_, "resnet18", "ResNet18_Weights.IMAGENET1K_V1");
  const nn::NamedTensors loaded = model_.state_dict();
  for (std::size_t i = 0; i < loaded.size(); ++i)
    EXPECT_TRUE(loaded[i].second.equal(saved[i].second)) << loaded[i].first;
}

TEST_F(PretrainedBackbone, OfDiffusionHasSeenOneBlackImageMore) {
  // Statistics and weights of some training, with and without a counter of its batches.
  const nn::ResNet source(*nn::find_resnet("resnet18"), {.norm = nn::ResNetNorm::kBatch});
  for (const bool counts : {true, false}) {
    serialization::NamedTensors saved;
    for (auto& [name, tensor] : source.state_dict()) {
      if (name.ends_with("num_batches_tracked")) {
        if (counts) saved.emplace_back(name, tensor + 41);
      } else {
        saved.emplace_back(name, tensor.detach() + 0.5);
      }
    }
    serialization::save_safetensors(torch_checkpoint_directory() / "resnet18-f37072fd.safetensors",
                                    saved);
    DiffusionConfig config;
    config.input_features = {{"observation.image", {config::FeatureType::kVisual, {3, 64, 64}}}};
    const DiffusionRgbEncoder encoder(config, /*load_pretrained=*/true);
    std::map<std::string, at::Tensor> state;
    for (const auto& [name, tensor] : encoder.state_dict()) state.emplace(name, tensor);
    const at::Tensor weight = state.at("backbone.0.weight").detach();
    EXPECT_TRUE(weight.equal(saved.front().second));
    EXPECT_EQ(state.at("backbone.1.num_batches_tracked").item<std::int64_t>(), counts ? 42 : 1);
    // A black image is zero behind the first convolution: a tenth of mean 0 and of variance 0.
    const at::Tensor mean = state.at("backbone.1.running_mean");
    const at::Tensor variance = state.at("backbone.1.running_var");
    EXPECT_TRUE(mean.allclose(at::full_like(mean, 0.9 * 0.5)));
    EXPECT_TRUE(variance.allclose(at::full_like(variance, 0.9 * 1.5)));
  }
}

TEST_F(PretrainedBackbone, IsAskedForByNameAndPlaceWhenItIsMissing) {
  EXPECT_THAT(load_error(), AllOf(HasSubstr("resnet18-f37072fd.pth"),
                                  HasSubstr((home_ / "hub" / "checkpoints").string()),
                                  HasSubstr("HF_HUB_OFFLINE is set"),
                                  HasSubstr("--policy.pretrained_backbone_weights=null")));
}

TEST_F(PretrainedBackbone, IsRefusedWhenItsHashIsWrong) {
  write_file_atomic(torch_checkpoint_directory() / "resnet18-f37072fd.pth", "junk");
  EXPECT_THAT(load_error(), AllOf(HasSubstr("resnet18-f37072fd.pth: damaged"),
                                  HasSubstr("should begin with f37072fd, found ")));
}

TEST_F(PretrainedBackbone, NamesATensorThatIsMissingOrOfAnotherShape) {
  const fs::path file = torch_checkpoint_directory() / "resnet18-f37072fd.safetensors";
  serialization::NamedTensors saved = model_.state_dict();
  for (auto& [name, tensor] : saved) {
    tensor = tensor.detach();
    if (name == "bn1.weight") tensor = at::zeros({3});
  }
  serialization::save_safetensors(file, saved);
  EXPECT_THAT(load_error(), HasSubstr("tensor bn1.weight should have shape [64], found [3]"));
  saved.erase(saved.begin());
  serialization::save_safetensors(file, saved);
  EXPECT_THAT(load_error(), HasSubstr("has no tensor conv1.weight"));
}

TEST(BackboneWeights, AreFoundByLongAndShortName) {
  for (const char* name : {"ResNet50_Weights.IMAGENET1K_V1", "IMAGENET1K_V1"})
    EXPECT_EQ(find_backbone_weights("resnet50", name)->file, "resnet50-0676ba61.pth");
  for (const char* name : {"ResNet50_Weights.IMAGENET1K_V2", "ResNet50_Weights.DEFAULT", "DEFAULT"})
    EXPECT_EQ(find_backbone_weights("resnet50", name)->file, "resnet50-11ad3fa6.pth");
  EXPECT_EQ(find_backbone_weights("resnet34", "DEFAULT")->file, "resnet34-b627a593.pth");
  EXPECT_EQ(find_backbone_weights("resnet34", "ResNet18_Weights.IMAGENET1K_V1"), nullptr);
}

TEST(BackboneWeights, AreLookedForWhereTorchLooks) {
  ::unsetenv("TORCH_HOME");
  ::setenv("HOME", "/home/someone", 1);
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(torch_checkpoint_directory(), "/home/someone/.cache/torch/hub/checkpoints");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(torch_checkpoint_directory(), "/cache/torch/hub/checkpoints");
  ::setenv("TORCH_HOME", "~/models", 1);
  EXPECT_EQ(torch_checkpoint_directory(), "/home/someone/models/hub/checkpoints");
  ::unsetenv("TORCH_HOME");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace lerobot::policy
