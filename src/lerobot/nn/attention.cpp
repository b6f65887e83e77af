#include "lerobot/nn/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/zeros.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/dropout.h"
#include "lerobot/nn/init.h"

namespace lerobot::nn {

MultiheadAttention::MultiheadAttention(std::int64_t size, std::int64_t heads, double dropout)
    : Callable("MultiheadAttention"), size_(size), heads_(heads), dropout_(dropout) {
  if (heads <= 0 || size % heads != 0)
    fail("attention of size {} cannot be divided among {} heads", size, heads);
  in_proj_weight = register_parameter("in_proj_weight", at::empty({3 * size, size}));
  in_proj_bias = register_parameter("in_proj_bias", at::zeros({3 * size}));
  // torch draws out_proj first, then replaces its bias.
  out_proj_ = register_module(
      "out_proj", std::make_shared<Linear>(size, size, "NonDynamicallyQuantizableLinear"));
  init::xavier_uniform(in_proj_weight);
  init::constant(out_proj_->bias, 0.0);
  out_proj_->use_lora(Linear::LoraUse::kNone);
}

void MultiheadAttention::add_lora(const LoraOptions& options) {
  require_init_without_weight(options.init, class_name());
  check_internal(!out_proj_->has_lora(), "attention whose output projection has an adapter");
  // peft draws the output projection's matrices twice, the second time after the packed ones.
  draw_lora(out_proj_->weight, options);
  lora_ = draw_lora(in_proj_weight, options);
  out_proj_->add_lora(options);
  out_proj_->use_lora(Linear::LoraUse::kInWeight);
  take_in_lora(lora_.a, lora_.b, in_proj_weight.device());
}

at::Tensor MultiheadAttention::split_heads(const at::Tensor& x, std::int64_t batch) const {
  const std::int64_t rows = x.size(0);
  const std::int64_t head_size = size_ / heads_;
  at::Tensor heads = x.unflatten(2, {heads_, head_size});  // (L, B or 1, H, d)
  if (x.size(1) != batch) heads = heads.expand({rows, batch, heads_, head_size});
  return heads.permute({1, 2, 0, 3});  // (B, H, L, d)
}

at::Tensor MultiheadAttention::key_bias(const at::Tensor& key_padding, at::ScalarType type) const {
  const std::int64_t batch = key_padding.size(0);
  const std::int64_t keys = key_padding.size(1);
  at::Tensor bias = at::zeros({batch, 1, keys}, key_padding.options().dtype(type));
  bias.masked_fill_(key_padding.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return bias.unsqueeze(1).expand({batch, heads_, 1, keys}).reshape({batch * heads_, 1, keys});
}

at::Tensor MultiheadAttention::forward(const at::Tensor& query, const at::Tensor& key,
                                       const at::Tensor& value, const AttentionOptions& options) {
  const double p = is_training() ? dropout_ : 0.0;
  const std::int64_t rows = query.size(0);
  const std::int64_t head_size = size_ / heads_;
  std::int64_t batch = std::max({query.size(1), key.size(1), value.size(1)});
  if (p > 0.0) batch = std::max(batch, options.batch);

  const at::Tensor projection =
      lora_ ? in_proj_weight + lora_.weight_update(in_proj_weight.scalar_type()) : in_proj_weight;
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  if (query.is_same(key)) {
    const auto weights = projection.split_with_sizes({2 * size_, size_});
    const auto biases = in_proj_bias.split_with_sizes({2 * size_, size_});
    const auto both = at::linear(key, weights[0], biases[0]).split_with_sizes({size_, size_}, 2);
    q = both[0];
    k = both[1];
    v = at::linear(value, weights[1], biases[1]);
  } else {
    const auto weights = projection.split_with_sizes({size_, size_, size_});
    const auto biases = in_proj_bias.split_with_sizes({size_, size_, size_});
    q = at::linear(query, weights[0], biases[0]);
    k = at::linear(key, weights[1], biases[1]);
    v = at::linear(value, weights[2], biases[2]);
  }
  q = split_heads(q, batch).reshape({batch * heads_, rows, head_size});
  k = split_heads(k, batch).reshape({batch * heads_, key.size(0), head_size});
  v = split_heads(v, batch).reshape({batch * heads_, key.size(0), head_size});

  const double scale = std::sqrt(1.0 / static_cast<double>(head_size));
  const bool biased = options.key_bias.defined();
  const at::Tensor start = biased ? options.key_bias : at::zeros({1}, q.options());
  at::Tensor scores = at::baddbmm(start, q, k.transpose(1, 2), biased ? 1.0 : 0.0, scale);
  const DropoutDraws draws{batch * heads_, std::max(rows, options.query_rows) * scores.size(2)};
  const at::Tensor weights = dropout(at::softmax(scores, -1), p, draws);
  const at::Tensor mixed = at::bmm(weights, v).view({batch, heads_, rows, head_size});
  return (*out_proj_)(mixed.permute({2, 0, 1, 3}).reshape({rows, batch, size_}));
}

}  // namespace lerobot::nn
