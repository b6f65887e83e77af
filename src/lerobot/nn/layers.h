// Layers with parameters: names, shapes, order and initial values of torch.nn's.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/module.h"

namespace lerobot::nn {

/// y = x W^T + b; weight (out, in), bias (out).
class Linear final : public Callable<Linear> {
 public:
  Linear(std::int64_t in, std::int64_t out, std::string class_name = "Linear");
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;
  at::Tensor bias;
};

/// Over the last dimension, eps 1e-5; weight and bias (size).
class LayerNorm final : public Callable<LayerNorm> {
 public:
  explicit LayerNorm(std::int64_t size);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;
  at::Tensor bias;
};

/// A table (rows, size), drawn from N(0, 1).
class Embedding final : public Module {
 public:
  Embedding(std::int64_t rows, std::int64_t size);

  at::Tensor weight;
};

struct Conv2dOptions {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  bool bias = true;
};

/// weight (out, in, k, k), bias (out).
class Conv2d final : public Callable<Conv2d> {
 public:
  Conv2d(std::int64_t in, std::int64_t out, const Conv2dOptions& options);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  Conv2dOptions options_;
};

}  // namespace lerobot::nn
