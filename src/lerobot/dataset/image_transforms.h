// Random augmentation of camera frames: LeRobot's dataset.image_transforms.
//
// A call draws max_num_transforms of the configured transforms (by weight, without replacement),
// keeps the list's order unless random_order, draws each one's numbers and applies them to all
// frames of one camera of one sample. From the same torch generator the draws and the pixels are
// those of LeRobot 0.6 with torchvision 0.26 on uint8 frames; whoever hands out a generator seeded
// by (seed, epoch, position, camera) gets results that do not depend on threads.
//
// Cameras of dtype "image" are float32 in LeRobot and uint8 here: there each transform rounds to a
// level more often than LeRobot's.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "lerobot/config/train_config.h"

namespace lerobot::dataset {

/// One configured transform.
class ImageTransform;

/// Thread-safe; copies share their content.
class ImageTransforms {
 public:
  /// Throws UsageError naming dataset.image_transforms.tfs.NAME for an unknown type, an unknown or
  /// missing keyword and a value out of range. Transforms of weight 0 are left out, unchecked, as
  /// in LeRobot; without enable, or when nothing is left, calls change nothing.
  explicit ImageTransforms(const config::ImageTransformsConfig& config);

  /// Changes `pixels` (uint8, contiguous, [C, H, W] or [T, C, H, W], C 1 or 3) in place; all T
  /// frames get the same numbers. Throws Error for other cameras.
  void operator()(at::Tensor& pixels, at::Generator& generator) const;

 private:
  std::vector<std::shared_ptr<const ImageTransform>> transforms_;
  std::vector<float> probabilities_;
  std::int64_t draws_ = 0;
  bool random_order_ = false;
};

}  // namespace lerobot::dataset
