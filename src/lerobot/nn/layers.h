// Layers with parameters: names, shapes, order and initial values of torch.nn's.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/lora.h"
#include "lerobot/nn/module.h"

namespace lerobot::nn {

/// y = x W^T + b; weight (out, in), bias (out).
class Linear final : public Callable<Linear>, public LoraLayer {
 public:
  Linear(std::int64_t in, std::int64_t out, std::string class_name = "Linear",
         bool has_bias = true);
  at::Tensor forward(const at::Tensor& x) const;

  void add_lora(const LoraOptions& options) override;
  bool has_lora() const override { return static_cast<bool>(lora_); }
  /// How an adapter acts: beside the layer, as peft's on a layer that is called, or as on the
  /// output projection of attention, whose weight torch takes without calling it: not at all, or,
  /// when the attention is adapted, by a changed weight. peft 0.21 adds the update to that weight
  /// twice, once without a gradient; what was trained so has to be used so.
  enum class LoraUse { kBeside, kInWeight, kNone };
  void use_lora(LoraUse use) { lora_use_ = use; }

  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  LoraPair<Linear> lora_;
  LoraUse lora_use_ = LoraUse::kBeside;
};

/// New matrices for a weight (out, in), with their first values.
LoraPair<Linear> draw_lora(const at::Tensor& weight, const LoraOptions& options);

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
class Conv2d final : public Callable<Conv2d>, public LoraLayer {
 public:
  Conv2d(std::int64_t in, std::int64_t out, const Conv2dOptions& options);
  at::Tensor forward(const at::Tensor& x) const;

  /// Throws Error for a dilated convolution, too: peft's adapter of one has another output's size.
  void add_lora(const LoraOptions& options) override;
  bool has_lora() const override { return static_cast<bool>(lora_); }

  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  Conv2dOptions options_;
  LoraPair<Conv2d> lora_;
};

}  // namespace lerobot::nn
