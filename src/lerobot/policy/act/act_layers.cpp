#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>

#include "lerobot/nn/dropout.h"
#include "lerobot/policy/act/act_model.h"

namespace lerobot::policy {
namespace {

at::Tensor first_rows(const at::Tensor& x, std::int64_t rows) {
  return rows == x.size(0) ? x : x.narrow(0, 0, rows);
}

/// Draws for the first tokens of a sequence of `rows` tokens, where x holds those first ones.
nn::DropoutDraws draws_of(const at::Tensor& x, std::int64_t rows) {
  return {1, x.numel() / x.size(0) * rows};
}

}  // namespace

at::Tensor ActFeedForward::operator()(const at::Tensor& x, double dropout,
                                      std::int64_t rows) const {
  at::Tensor hidden = (*linear1)(x);
  const nn::DropoutDraws draws = draws_of(hidden, rows);
  if (gelu) return (*linear2)(nn::dropout(at::gelu(hidden), dropout, draws));
  return (*linear2)(nn::relu_dropout(std::move(hidden), dropout, draws));
}

// --- Encoder
// --------------------------------------------------------------------------------------

ActEncoderLayer::ActEncoderLayer(const ActConfig& config)
    : Callable("ACTEncoderLayer"), pre_norm_(config.pre_norm), dropout_(config.dropout) {
  const std::int64_t size = config.dim_model;
  self_attn_ = register_module(
      "self_attn", std::make_shared<nn::MultiheadAttention>(size, config.n_heads, config.dropout));
  feed_forward_.gelu = config.feedforward_activation == "gelu";
  feed_forward_.linear1 =
      register_module("linear1", std::make_shared<nn::Linear>(size, config.dim_feedforward));
  feed_forward_.linear2 =
      register_module("linear2", std::make_shared<nn::Linear>(config.dim_feedforward, size));
  norm1_ = register_module("norm1", std::make_shared<nn::LayerNorm>(size));
  norm2_ = register_module("norm2", std::make_shared<nn::LayerNorm>(size));
}

at::Tensor ActEncoderLayer::forward(const at::Tensor& x, const at::Tensor& positions,
                                    const at::Tensor& key_bias, std::int64_t wanted) {
  const double p = is_training() ? dropout_ : 0.0;
  const std::int64_t rows = x.size(0);
  const at::Tensor value = pre_norm_ ? (*norm1_)(x) : x;
  const at::Tensor key = value + positions;
  const at::Tensor mixed =
      (*self_attn_)(first_rows(key, wanted), key, value, nn::AttentionOptions{key_bias, rows, 0});
  at::Tensor y = nn::dropout_add(first_rows(x, wanted), mixed, p, draws_of(mixed, rows));
  if (pre_norm_) {
    const at::Tensor fed = feed_forward_((*norm2_)(y), p, rows);
    return nn::dropout_add(y, fed, p, draws_of(fed, rows));
  }
  y = (*norm1_)(y);
  const at::Tensor fed = feed_forward_(y, p, rows);
  return (*norm2_)(nn::dropout_add(y, fed, p, draws_of(fed, rows)));
}

ActEncoder::ActEncoder(const ActConfig& config, std::int64_t layers) : Callable("ACTEncoder") {
  layers_ = register_module("layers", std::make_shared<nn::ModuleList<ActEncoderLayer>>());
  for (std::int64_t i = 0; i < layers; ++i)
    layers_->push_back(std::make_shared<ActEncoderLayer>(config));
  if (config.pre_norm)
    norm_ = register_module("norm", std::make_shared<nn::LayerNorm>(config.dim_model));
}

at::Tensor ActEncoder::forward(at::Tensor x, const at::Tensor& positions, const at::Tensor& padding,
                               std::int64_t wanted) {
  at::Tensor key_bias;
  if (padding.defined() && layers_->size() > 0)
    key_bias = (*layers_)[0].attention().key_bias(padding, x.scalar_type());
  for (std::size_t i = 0; i < layers_->size(); ++i) {
    const bool last = i + 1 == layers_->size();
    x = (*layers_)[i](x, positions, key_bias, last ? wanted : x.size(0));
  }
  x = first_rows(x, wanted);
  return norm_ ? (*norm_)(x) : x;
}

// --- Decoder
// --------------------------------------------------------------------------------------

ActDecoderLayer::ActDecoderLayer(const ActConfig& config)
    : Callable("ACTDecoderLayer"), pre_norm_(config.pre_norm), dropout_(config.dropout) {
  const std::int64_t size = config.dim_model;
  self_attn_ = register_module(
      "self_attn", std::make_shared<nn::MultiheadAttention>(size, config.n_heads, config.dropout));
  multihead_attn_ = register_module("multihead_attn", std::make_shared<nn::MultiheadAttention>(
                                                          size, config.n_heads, config.dropout));
  feed_forward_.gelu = config.feedforward_activation == "gelu";
  feed_forward_.linear1 =
      register_module("linear1", std::make_shared<nn::Linear>(size, config.dim_feedforward));
  feed_forward_.linear2 =
      register_module("linear2", std::make_shared<nn::Linear>(config.dim_feedforward, size));
  norm1_ = register_module("norm1", std::make_shared<nn::LayerNorm>(size));
  norm2_ = register_module("norm2", std::make_shared<nn::LayerNorm>(size));
  norm3_ = register_module("norm3", std::make_shared<nn::LayerNorm>(size));
}

at::Tensor ActDecoderLayer::forward(at::Tensor x, const at::Tensor& positions,
                                    const at::Tensor& memory, const at::Tensor& memory_keys) {
  const double p = is_training() ? dropout_ : 0.0;
  const std::int64_t rows = x.size(0);

  at::Tensor value = pre_norm_ ? (*norm1_)(x) : x;
  const at::Tensor key = value + positions;
  at::Tensor mixed =
      (*self_attn_)(key, key, value, nn::AttentionOptions{{}, 0, /*batch=*/memory.size(1)});
  x = nn::dropout_add(x, mixed, p);

  if (!pre_norm_) x = (*norm1_)(x);
  const at::Tensor query = (pre_norm_ ? (*norm2_)(x) : x) + positions;
  mixed = (*multihead_attn_)(query, memory_keys, memory);
  x = nn::dropout_add(x, mixed, p);

  if (!pre_norm_) x = (*norm2_)(x);
  const at::Tensor fed = feed_forward_(pre_norm_ ? (*norm3_)(x) : x, p, rows);
  x = nn::dropout_add(x, fed, p);
  return pre_norm_ ? x : (*norm3_)(x);
}

ActDecoder::ActDecoder(const ActConfig& config) : Callable("ACTDecoder") {
  layers_ = register_module("layers", std::make_shared<nn::ModuleList<ActDecoderLayer>>());
  for (std::int64_t i = 0; i < config.n_decoder_layers; ++i)
    layers_->push_back(std::make_shared<ActDecoderLayer>(config));
  norm_ = register_module("norm", std::make_shared<nn::LayerNorm>(config.dim_model));
}

at::Tensor ActDecoder::forward(at::Tensor x, const at::Tensor& positions, const at::Tensor& memory,
                               const at::Tensor& memory_positions) {
  const at::Tensor memory_keys = memory + memory_positions;
  for (const auto& layer : *layers_) x = (*layer)(x, positions, memory, memory_keys);
  return (*norm_)(x);
}

}  // namespace lerobot::policy
