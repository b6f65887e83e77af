// Multi-head attention with the parameters of torch.nn.MultiheadAttention.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "lerobot/nn/layers.h"
#include "lerobot/nn/module.h"

namespace lerobot::nn {

/// What attention sees besides its inputs.
struct AttentionOptions {
  /// Added to the scores: (B * heads, 1, S), minus infinity at keys that are padding. Undefined:
  /// none.
  at::Tensor key_bias;
  /// Rows of the whole query sequence, of which `query` holds only the first: LeRobot draws dropout
  /// for all of them. 0: `query` is whole.
  std::int64_t query_rows = 0;
  /// Sequences that the result must hold. Only needed where all inputs hold a single one.
  std::int64_t batch = 0;
};

/// Sequence-first. Projections are packed: rows 0..D-1 of in_proj_weight (3D, D) make queries, the
/// next D keys, the last D values.
///
/// An adapter changes the packed projections and the output projection together, as peft's. One of
/// `out_proj` alone has no effect there, nor here.
class MultiheadAttention final : public Callable<MultiheadAttention>, public LoraLayer {
 public:
  /// Throws Error when `heads` does not divide `size`.
  MultiheadAttention(std::int64_t size, std::int64_t heads, double dropout);

  /// query (L, B, D), key and value (S, B, D) -> (L, B, D). An input whose B is 1 stands for every
  /// sequence of the batch, and is projected once. Dropout on the weights in training.
  at::Tensor forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options = {});

  /// `key_padding` (B, S) bool, true at padding, as AttentionOptions::key_bias.
  at::Tensor key_bias(const at::Tensor& key_padding, at::ScalarType type) const;

  void add_lora(const LoraOptions& options) override;
  bool has_lora() const override { return static_cast<bool>(lora_); }

  at::Tensor in_proj_weight;
  at::Tensor in_proj_bias;

 private:
  at::Tensor split_heads(const at::Tensor& x, std::int64_t batch) const;

  std::int64_t size_;
  std::int64_t heads_;
  double dropout_;
  std::shared_ptr<Linear> out_proj_;
  LoraPair<Linear> lora_;
};

}  // namespace lerobot::nn
