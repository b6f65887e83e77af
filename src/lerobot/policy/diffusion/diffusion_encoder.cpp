#include "lerobot/policy/diffusion/diffusion_encoder.h"

#include <cmath>

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"
#include "lerobot/policy/pretrained_backbone.h"

namespace lerobot::policy {
namespace {

/// Position `i` of `count` that are spread evenly from -1 to 1.
double spread(std::int64_t i, std::int64_t count) {
  if (i > 0 && i == count - 1) return 1.0;
  const double step = count > 1 ? 2.0 / static_cast<double>(count - 1) : 0.0;
  return -1.0 + static_cast<double>(i) * step;
}

at::Tensor position_grid(std::int64_t height, std::int64_t width) {
  at::Tensor grid = at::empty({height * width, 2}, at::kFloat);
  float* out = grid.mutable_data_ptr<float>();
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      *out++ = static_cast<float>(spread(x, width));
      *out++ = static_cast<float>(spread(y, height));
    }
  }
  return grid;
}

/// From 0 to `slack`, drawn on the CPU wherever the images are.
std::int64_t random_offset(std::int64_t slack) {
  return at::randint(0, slack + 1, {1}, at::kLong).item<std::int64_t>();
}

/// Half of `slack`; halves go to the even side, as Python's round() has it.
std::int64_t centre_offset(std::int64_t slack) {
  return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(slack) / 2.0));
}

}  // namespace

SpatialSoftmax::SpatialSoftmax(std::int64_t channels, std::int64_t height, std::int64_t width,
                               std::int64_t keypoints)
    : Callable("SpatialSoftmax"), keypoints_(keypoints) {
  pos_grid_ = register_buffer("pos_grid", position_grid(height, width));
  nets_ = register_module("nets",
                          std::make_shared<nn::Conv2d>(channels, keypoints, nn::Conv2dOptions{}));
}

at::Tensor SpatialSoftmax::forward(const at::Tensor& maps) {
  const at::Tensor scores = (*nets_)(maps).reshape({-1, pos_grid_.size(0)});
  return at::matmul(at::softmax(scores, -1), pos_grid_).view({-1, keypoints_, 2});
}

DiffusionRgbEncoder::DiffusionRgbEncoder(const DiffusionConfig& config, bool load_pretrained)
    : Callable("DiffusionRgbEncoder"), config_(config), size_(config.image_size()) {
  const nn::ResNetVariant& variant = *nn::find_resnet(config_.vision_backbone);
  const nn::ResNetNorm norm =
      config_.use_group_norm ? nn::ResNetNorm::kGroup : nn::ResNetNorm::kBatch;
  backbone_ = register_module(
      "backbone", std::make_shared<nn::ResNet>(
                      variant, nn::ResNetOptions{.norm = norm, .names = nn::ResNetNames::kPlaces}));
  if (load_pretrained && config_.pretrained_backbone_weights)
    load_backbone_weights(*backbone_, config_.vision_backbone,
                          *config_.pretrained_backbone_weights);
  at::Tensor map;
  {
    const c10::AutoGradMode no_grad(false);
    map = (*backbone_)(at::zeros({1, 3, size_[0], size_[1]}));
  }
  const std::int64_t keypoints = config_.spatial_softmax_num_keypoints;
  pool_ = register_module("pool", std::make_shared<SpatialSoftmax>(variant.features(), map.size(2),
                                                                   map.size(3), keypoints));
  out_ = register_module("out", std::make_shared<nn::Linear>(2 * keypoints, 2 * keypoints));
}

at::Tensor DiffusionRgbEncoder::cropped(const at::Tensor& images) const {
  if (!config_.crop_shape) return images;
  const auto [height, width] = size_;
  const std::int64_t down = images.size(2) - height;
  const std::int64_t right = images.size(3) - width;
  if (down < 0 || right < 0 || (down == 0 && right == 0)) return images;
  const bool random = is_training() && config_.crop_is_random;
  const auto offset = random ? random_offset : centre_offset;
  const std::int64_t top = offset(down);
  const std::int64_t left = offset(right);
  return images.narrow(2, top, height).narrow(3, left, width);
}

at::Tensor DiffusionRgbEncoder::prepared(const at::Tensor& images) const {
  at::Tensor x = images;
  if (const auto& shape = config_.resize_shape;
      shape && (x.size(2) != (*shape)[0] || x.size(3) != (*shape)[1]))
    x = at::_upsample_bilinear2d_aa(x, *shape, /*align_corners=*/false, /*scales_h=*/std::nullopt,
                                    /*scales_w=*/std::nullopt);
  x = cropped(x);
  if (x.size(2) != size_[0] || x.size(3) != size_[1])
    fail(
        "images of {}x{} pixels: this policy was made for {}x{}; resize them with "
        "--policy.resize_shape when a policy is new",
        x.size(2), x.size(3), size_[0], size_[1]);
  return x;
}

at::Tensor DiffusionRgbEncoder::forward(const at::Tensor& images) {
  const at::Tensor points = (*pool_)((*backbone_)(prepared(images)));
  return at::relu((*out_)(points.flatten(1)));
}

}  // namespace lerobot::policy
