// From camera images to points: a ResNet whose map a spatial softmax turns into expected positions
// of keypoints.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/layers.h"
#include "lerobot/nn/module.h"
#include "lerobot/nn/resnet.h"
#include "lerobot/policy/diffusion/diffusion_config.h"

namespace lerobot::policy {

/// Where in the image each of K features lies on average: maps (n, C, h, w) -> (n, K, 2), x and y
/// from -1 (left, top) to 1.
class SpatialSoftmax final : public nn::Callable<SpatialSoftmax> {
 public:
  SpatialSoftmax(std::int64_t channels, std::int64_t height, std::int64_t width,
                 std::int64_t keypoints);
  at::Tensor forward(const at::Tensor& maps);

 private:
  std::int64_t keypoints_;
  at::Tensor pos_grid_;  // (h * w, 2): x and y of the map's pixels, row by row
  std::shared_ptr<nn::Conv2d> nets_;
};

/// Images (n, 3, H, W), normalised -> features (n, 2K).
class DiffusionRgbEncoder final : public nn::Callable<DiffusionRgbEncoder> {
 public:
  /// Draws its weights from the global CPU generator; looks the pretrained ones up if
  /// `load_pretrained`. Pushes one black image through the backbone in training mode, as LeRobot
  /// does to learn the map's size: with batch normalisation that is the first of the batches that
  /// the running statistics have seen.
  DiffusionRgbEncoder(const DiffusionConfig& config, bool load_pretrained);

  at::Tensor forward(const at::Tensor& images);

  /// What the backbone sees: resized and cropped, in training at random, at one place for all
  /// images of the call. Throws Error for images that are not of the configured size.
  at::Tensor prepared(const at::Tensor& images) const;

 private:
  at::Tensor cropped(const at::Tensor& images) const;

  DiffusionConfig config_;
  std::array<std::int64_t, 2> size_;  // of what the backbone sees
  std::shared_ptr<nn::ResNet> backbone_;
  std::shared_ptr<SpatialSoftmax> pool_;
  std::shared_ptr<nn::Linear> out_;
};

}  // namespace lerobot::policy
