// Convolutions over time: names, shapes, order and initial values of torch.nn's.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/lora.h"
#include "lerobot/nn/module.h"

namespace lerobot::nn {

struct Conv1dOptions {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
};

/// x (B, in, T) -> (B, out, T'); weight (out, in, k), bias (out).
class Conv1d final : public Callable<Conv1d>, public LoraLayer {
 public:
  Conv1d(std::int64_t in, std::int64_t out, const Conv1dOptions& options);
  at::Tensor forward(const at::Tensor& x) const;

  void add_lora(const LoraOptions& options) override;
  bool has_lora() const override { return static_cast<bool>(lora_); }

  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  Conv1dOptions options_;
  LoraPair<Conv1d> lora_;
};

/// The transposed convolution: x (B, in, T) -> (B, out, T'); weight (in, out, k), bias (out).
class ConvTranspose1d final : public Callable<ConvTranspose1d> {
 public:
  ConvTranspose1d(std::int64_t in, std::int64_t out, const Conv1dOptions& options);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  Conv1dOptions options_;
};

}  // namespace lerobot::nn
