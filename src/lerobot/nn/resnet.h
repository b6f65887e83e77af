// ResNet feature extractors, as torchvision builds them, with one of three kinds of normalisation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/channel_norm.h"
#include "lerobot/nn/layers.h"
#include "lerobot/nn/module.h"

namespace lerobot::nn {

/// What tells ResNets apart.
struct ResNetVariant {
  std::string_view name;               // "resnet18"
  bool bottleneck;                     // 1x1, 3x3, 1x1 with fourfold width, instead of 3x3, 3x3
  std::array<std::int64_t, 4> blocks;  // of each stage
  std::int64_t features() const { return bottleneck ? 2048 : 512; }
};

/// resnet18, 34, 50, 101, 152; null for another name.
const ResNetVariant* find_resnet(std::string_view name);

/// What normalises the convolutions' outputs: frozen and plain batch normalisation, or groups of 16
/// channels. The names of the modules say bn in every case.
enum class ResNetNorm { kFrozenBatch, kBatch, kGroup };

/// What the stem and the stages are called. As in torchvision ("conv1", "layer1"), or by their
/// place among torchvision's children ("0", "4": a Sequential of them).
enum class ResNetNames { kTorchvision, kPlaces };

struct ResNetOptions {
  ResNetNorm norm = ResNetNorm::kFrozenBatch;
  ResNetNames names = ResNetNames::kTorchvision;
  /// Replaces the last stage's stride by dilation. Bottleneck variants only: Error otherwise.
  bool dilate_last_stage = false;
};

class ResidualBlock;

/// Stem to layer4: images (B, 3, H, W) -> maps (B, features, H/32, W/32), rounded up (H/16 with
/// dilation). With frozen normalisation only the weights of convolutions are trained.
class ResNet final : public Callable<ResNet> {
 public:
  /// Draws what torchvision draws (default convolution weights and a classifier that are thrown
  /// away, then the real weights).
  ResNet(const ResNetVariant& variant, const ResNetOptions& options);

  at::Tensor forward(const at::Tensor& images);

  /// state_dict() under torchvision's names, whatever the modules are called.
  NamedTensors torchvision_state() const;

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<ChannelNorm> bn1_;
  std::vector<std::shared_ptr<ModuleList<ResidualBlock>>> stages_;
};

/// One residual block of either form ("BasicBlock" or "Bottleneck").
class ResidualBlock final : public Callable<ResidualBlock> {
 public:
  struct Shape {
    std::int64_t in = 0;
    std::int64_t width = 0;
    std::int64_t stride = 1;
    std::int64_t dilation = 1;
    bool bottleneck = false;
    ResNetNorm norm = ResNetNorm::kFrozenBatch;
    std::int64_t out() const { return bottleneck ? 4 * width : width; }
    bool downsample() const { return stride != 1 || in != out(); }
  };

  /// The downsampling convolution's weights are drawn first, as torchvision does.
  explicit ResidualBlock(const Shape& shape);
  at::Tensor forward(const at::Tensor& x);

  /// Convolutions in the order of the second, lasting draw.
  std::vector<Conv2d*> convolutions() const;

 private:
  struct Downsample final : Module {
    Downsample(std::shared_ptr<Conv2d> convolution, std::shared_ptr<ChannelNorm> norm);
    std::shared_ptr<Conv2d> convolution;
    std::shared_ptr<ChannelNorm> norm;
  };

  std::vector<std::shared_ptr<Conv2d>> convolutions_;
  std::vector<std::shared_ptr<ChannelNorm>> norms_;
  std::shared_ptr<Downsample> downsample_;
};

}  // namespace lerobot::nn
