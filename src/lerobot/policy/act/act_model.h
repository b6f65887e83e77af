// The network of ACT: a variational encoder of the action chunk, a transformer over image, state
// and latent tokens, and one learned query an action. Tensors are sequence-first inside: (tokens,
// B, D).
//
// Names, order and initial values of the parameters, and on the CPU the random draws, are
// LeRobot's; what it computes without using is left out: the last variational layer makes only the
// token that is read, and what is equal for all samples (the decoder's first queries) is computed
// once.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/dataset/batch.h"
#include "lerobot/nn/attention.h"
#include "lerobot/nn/layers.h"
#include "lerobot/nn/module.h"
#include "lerobot/nn/resnet.h"
#include "lerobot/policy/act/act_config.h"

namespace lerobot::policy {

/// Feed-forward part of a layer: linear2(dropout(activation(linear1(x)))).
struct ActFeedForward {
  std::shared_ptr<nn::Linear> linear1;
  std::shared_ptr<nn::Linear> linear2;
  bool gelu = false;

  /// x holds the first of `rows` tokens.
  at::Tensor operator()(const at::Tensor& x, double dropout, std::int64_t rows) const;
};

class ActEncoderLayer final : public nn::Callable<ActEncoderLayer> {
 public:
  explicit ActEncoderLayer(const ActConfig& config);
  /// x (S, B, D), positions (S, 1, D), key_bias of nn::AttentionOptions -> the first `wanted`
  /// tokens.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& key_bias,
                     std::int64_t wanted);

  const nn::MultiheadAttention& attention() const { return *self_attn_; }

 private:
  bool pre_norm_;
  double dropout_;
  std::shared_ptr<nn::MultiheadAttention> self_attn_;
  ActFeedForward feed_forward_;
  std::shared_ptr<nn::LayerNorm> norm1_;
  std::shared_ptr<nn::LayerNorm> norm2_;
};

class ActEncoder final : public nn::Callable<ActEncoder> {
 public:
  ActEncoder(const ActConfig& config, std::int64_t layers);
  /// `padding` (B, S) bool, true where a token is padding; undefined: none. Returns the first
  /// `wanted` tokens.
  at::Tensor forward(at::Tensor x, const at::Tensor& positions, const at::Tensor& padding,
                     std::int64_t wanted);

 private:
  std::shared_ptr<nn::ModuleList<ActEncoderLayer>> layers_;
  std::shared_ptr<nn::LayerNorm> norm_;  // with pre_norm only
};

class ActDecoderLayer final : public nn::Callable<ActDecoderLayer> {
 public:
  explicit ActDecoderLayer(const ActConfig& config);
  /// x (C, B, D), or (C, 1, D) when it is the same for all samples; positions (C, 1, D); memory and
  /// memory_keys (memory with its positions) (S, B, D).
  at::Tensor forward(at::Tensor x, const at::Tensor& positions, const at::Tensor& memory,
                     const at::Tensor& memory_keys);

 private:
  bool pre_norm_;
  double dropout_;
  std::shared_ptr<nn::MultiheadAttention> self_attn_;
  std::shared_ptr<nn::MultiheadAttention> multihead_attn_;
  ActFeedForward feed_forward_;
  std::shared_ptr<nn::LayerNorm> norm1_;
  std::shared_ptr<nn::LayerNorm> norm2_;
  std::shared_ptr<nn::LayerNorm> norm3_;
};

class ActDecoder final : public nn::Callable<ActDecoder> {
 public:
  explicit ActDecoder(const ActConfig& config);
  at::Tensor forward(at::Tensor x, const at::Tensor& positions, const at::Tensor& memory,
                     const at::Tensor& memory_positions);

 private:
  std::shared_ptr<nn::ModuleList<ActDecoderLayer>> layers_;
  std::shared_ptr<nn::LayerNorm> norm_;
};

struct ActOutput {
  at::Tensor actions;       // (B, C, A)
  at::Tensor mu;            // (B, L), undefined when the variational encoder did not run
  at::Tensor log_sigma_x2;  // (B, L), twice the logarithm of sigma

  template <class F>
  void for_each_tensor(const F& f) {
    for (at::Tensor* tensor : {&actions, &mu, &log_sigma_x2}) f(*tensor);
  }
};

class Act final : public nn::Callable<Act> {
 public:
  /// Draws its weights from the global CPU generator.
  explicit Act(const ActConfig& config);

  /// The variational encoder runs in training mode; it needs "action" and "action_is_pad".
  ActOutput forward(const dataset::Batch& batch);

  /// Null without cameras.
  nn::ResNet* backbone() { return backbone_.get(); }

 private:
  /// mu and log_sigma_x2, side by side (B, 2L).
  at::Tensor latent_parameters(const dataset::Batch& batch);
  const at::Tensor& image_positions(const at::Tensor& map);

  const ActConfig config_;
  at::Tensor vae_encoder_pos_enc_;
  std::shared_ptr<ActEncoder> vae_encoder_;
  std::shared_ptr<nn::Embedding> vae_encoder_cls_embed_;
  std::shared_ptr<nn::Linear> vae_encoder_robot_state_input_proj_;
  std::shared_ptr<nn::Linear> vae_encoder_action_input_proj_;
  std::shared_ptr<nn::Linear> vae_encoder_latent_output_proj_;
  std::shared_ptr<nn::ResNet> backbone_;
  std::shared_ptr<ActEncoder> encoder_;
  std::shared_ptr<ActDecoder> decoder_;
  std::shared_ptr<nn::Linear> encoder_robot_state_input_proj_;
  std::shared_ptr<nn::Linear> encoder_env_state_input_proj_;
  std::shared_ptr<nn::Linear> encoder_latent_input_proj_;
  std::shared_ptr<nn::Conv2d> encoder_img_feat_input_proj_;
  std::shared_ptr<nn::Embedding> encoder_1d_feature_pos_embed_;
  std::shared_ptr<nn::Embedding> decoder_pos_embed_;
  std::shared_ptr<nn::Linear> action_head_;
  std::map<std::pair<std::int64_t, std::int64_t>, at::Tensor> image_positions_;
};

/// Fixed positions (count, size): sines at even, cosines at odd channels, of
/// p / 10000^(2 floor(j / 2) / size).
at::Tensor sinusoidal_positions(std::int64_t count, std::int64_t size);
/// Fixed positions of a map's pixels, row by row (height * width, 2 * size_per_axis): the vertical
/// part, then the horizontal one.
at::Tensor sinusoidal_positions_2d(std::int64_t height, std::int64_t width,
                                   std::int64_t size_per_axis);

}  // namespace lerobot::policy
