// ResNet feature extractors, as torchvision builds them with frozen batch normalisation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/frozen_batch_norm.h"
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

class ResidualBlock;

/// conv1 to layer4: images (B, 3, H, W) -> maps (B, features, H/32, W/32) (H/16 with dilation).
/// Convolution weights are trained, the rest are buffers. Names are torchvision's, without fc.
class ResNet final : public Callable<ResNet> {
 public:
  /// Draws what torchvision draws (default convolution weights and a classifier that are thrown
  /// away, then the real weights). `dilate_last_stage` replaces the last stage's stride by dilation
  /// (bottleneck variants only: Error otherwise).
  ResNet(const ResNetVariant& variant, bool dilate_last_stage);

  at::Tensor forward(const at::Tensor& images);

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<FrozenBatchNorm2d> bn1_;
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
    Downsample(std::shared_ptr<Conv2d> convolution, std::int64_t channels);
    std::shared_ptr<Conv2d> convolution;
    std::shared_ptr<FrozenBatchNorm2d> norm;
  };

  std::vector<std::shared_ptr<Conv2d>> convolutions_;
  std::vector<std::shared_ptr<FrozenBatchNorm2d>> norms_;
  std::shared_ptr<Downsample> downsample_;
};

}  // namespace lerobot::nn
