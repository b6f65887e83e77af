// What loaders do to decoded pixels.
#pragma once

#include <functional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace lerobot::dataset {

/// Changes the pixels of one camera of one sample in place: uint8 [C,H,W], or [T,C,H,W] with a
/// window. Called by several threads at once. Random draws come from `generator`.
using PixelTransform = std::function<void(at::Tensor& pixels, at::Generator& generator)>;

}  // namespace lerobot::dataset
