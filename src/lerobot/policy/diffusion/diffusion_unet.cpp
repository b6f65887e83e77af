#include "lerobot/policy/diffusion/diffusion_unet.h"

#include <cmath>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mish.h>

#include "lerobot/nn/recompute.h"

namespace lerobot::policy {
namespace {

/// Of the last convolution block, whatever n_groups says.
constexpr std::int64_t kFinalGroups = 8;

/// Modules that run one after the other, for the names that torch's Sequential gives them: what has
/// no parameters only takes a number.
struct Sequential final : nn::Module {
  Sequential() : Module("Sequential") {}
  template <class T>
  std::shared_ptr<T> at(int place, std::shared_ptr<T> module) {
    return register_module(std::to_string(place), std::move(module));
  }
};

/// For the name: what chooses modules by theirs finds it, as in Python.
struct Identity final : nn::Module {
  Identity() : Module("Identity") {}
};

}  // namespace

at::Tensor step_embedding(const at::Tensor& steps, std::int64_t size) {
  constexpr double kSlowest = 10000;
  const std::int64_t half = size / 2;
  const double decay = -(std::log(kSlowest) / static_cast<double>(half - 1));
  const at::Tensor frequencies = at::exp(at::arange(half, steps.options()) * decay);
  const at::Tensor angles = steps.unsqueeze(-1) * frequencies.unsqueeze(0);
  return at::cat({angles.sin(), angles.cos()}, -1);
}

DiffusionStepEncoder::DiffusionStepEncoder(std::int64_t size)
    : Callable("Sequential"),
      size_(size),
      widen_(register_module("1", std::make_shared<nn::Linear>(size, 4 * size))),
      narrow_(register_module("3", std::make_shared<nn::Linear>(4 * size, size))) {}

at::Tensor DiffusionStepEncoder::forward(const at::Tensor& steps) {
  return (*narrow_)(at::mish((*widen_)(step_embedding(steps, size_))));
}

DiffusionConv1dBlock::DiffusionConv1dBlock(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                           std::int64_t groups)
    : Callable("DiffusionConv1dBlock") {
  const auto block = register_module("block", std::make_shared<Sequential>());
  convolution_ =
      block->at(0, std::make_shared<nn::Conv1d>(
                       in, out, nn::Conv1dOptions{.kernel = kernel, .padding = kernel / 2}));
  norm_ = block->at(1, std::make_shared<nn::GroupNorm>(groups, out));
}

at::Tensor DiffusionConv1dBlock::forward(const at::Tensor& x) {
  return at::mish((*norm_)((*convolution_)(x)));
}

DiffusionResidualBlock::DiffusionResidualBlock(std::int64_t in, std::int64_t out,
                                               std::int64_t condition,
                                               const DiffusionConfig& config)
    : Callable("DiffusionConditionalResidualBlock1d"), scales_(config.use_film_scale_modulation) {
  const auto conv_block = [&](std::int64_t channels) {
    return std::make_shared<DiffusionConv1dBlock>(channels, out, config.kernel_size,
                                                  config.n_groups);
  };
  conv1_ = register_module("conv1", conv_block(in));
  const auto encoder = register_module("cond_encoder", std::make_shared<Sequential>());
  cond_encoder_ = encoder->at(1, std::make_shared<nn::Linear>(condition, scales_ ? 2 * out : out));
  conv2_ = register_module("conv2", conv_block(out));
  if (in != out)
    residual_conv_ = register_module("residual_conv",
                                     std::make_shared<nn::Conv1d>(in, out, nn::Conv1dOptions{}));
  else
    register_module("residual_conv", std::make_shared<Identity>());
}

at::Tensor DiffusionResidualBlock::forward(const at::Tensor& x, const at::Tensor& condition,
                                           const at::Tensor& shortcut) {
  at::Tensor y = (*conv1_)(x);
  const at::Tensor film = (*cond_encoder_)(at::mish(condition)).unsqueeze(-1);
  if (scales_) {
    const std::int64_t channels = film.size(1) / 2;
    y = film.narrow(1, 0, channels) * y + film.narrow(1, channels, channels);
  } else {
    y = y + film;
  }
  y = (*conv2_)(y);
  return y + (residual_conv_ ? (*residual_conv_)(shortcut) : shortcut);
}

// The order of these statements is the order of LeRobot's parameters and of its random draws.
DiffusionUnet::DiffusionUnet(const DiffusionConfig& config)
    : Callable("DiffusionConditionalUnet1d"), recomputes_(config.gradient_checkpointing) {
  const std::int64_t actions = config.action()->second.shape[0];
  const std::int64_t condition = config.diffusion_step_embed_dim + config.condition_size();
  const auto& sizes = config.down_dims;
  const std::size_t levels = sizes.size();
  const auto block = [&](std::int64_t in, std::int64_t out) {
    return std::make_shared<DiffusionResidualBlock>(in, out, condition, config);
  };

  step_encoder_ =
      register_module("diffusion_step_encoder",
                      std::make_shared<DiffusionStepEncoder>(config.diffusion_step_embed_dim));
  down_ = register_module("down_modules", std::make_shared<nn::ModuleList<DownLevel>>());
  for (std::size_t l = 0; l < levels; ++l) {
    auto first = block(l == 0 ? actions : sizes[l - 1], sizes[l]);
    auto second = block(sizes[l], sizes[l]);
    std::shared_ptr<nn::Conv1d> halve;
    if (l + 1 < levels)
      halve = std::make_shared<nn::Conv1d>(
          sizes[l], sizes[l], nn::Conv1dOptions{.kernel = 3, .stride = 2, .padding = 1});
    down_->push_back(
        std::make_shared<DownLevel>(std::move(first), std::move(second), std::move(halve)));
  }
  mid_ = register_module("mid_modules", std::make_shared<nn::ModuleList<DiffusionResidualBlock>>());
  for (int i = 0; i < 2; ++i) mid_->push_back(block(sizes.back(), sizes.back()));
  up_ = register_module("up_modules", std::make_shared<nn::ModuleList<UpLevel>>());
  for (std::size_t l = levels - 1; l > 0; --l) {
    auto first = block(2 * sizes[l], sizes[l - 1]);
    auto second = block(sizes[l - 1], sizes[l - 1]);
    auto twice = std::make_shared<nn::ConvTranspose1d>(
        sizes[l - 1], sizes[l - 1], nn::Conv1dOptions{.kernel = 4, .stride = 2, .padding = 1});
    up_->push_back(
        std::make_shared<UpLevel>(std::move(first), std::move(second), std::move(twice)));
  }
  const auto final = register_module("final_conv", std::make_shared<Sequential>());
  final_block_ = final->at(0, std::make_shared<DiffusionConv1dBlock>(
                                  sizes[0], sizes[0], config.kernel_size, kFinalGroups));
  final_conv_ = final->at(1, std::make_shared<nn::Conv1d>(sizes[0], actions, nn::Conv1dOptions{}));
}

at::Tensor DiffusionUnet::run(DiffusionResidualBlock& block, const at::Tensor& x,
                              const at::Tensor& condition) {
  if (!recomputes_ || !is_training()) return block(x, condition, x);
  // Backward comes to the shortcut first.
  return nn::recompute_in_backward(block, {x, x, condition},
                                   [&block](const std::vector<at::Tensor>& inputs) {
                                     return block(inputs[1], inputs[2], inputs[0]);
                                   });
}

at::Tensor DiffusionUnet::forward(const at::Tensor& x, const at::Tensor& steps,
                                  const at::Tensor& condition) {
  const at::Tensor whole_condition = at::cat({(*step_encoder_)(steps), condition}, -1);
  at::Tensor y = x.transpose(1, 2);
  std::vector<at::Tensor> skipped;
  for (const auto& level : *down_) {
    y = run(*level->first, y, whole_condition);
    y = run(*level->second, y, whole_condition);
    skipped.push_back(y);
    if (level->resample) y = (*level->resample)(y);
  }
  for (const auto& block : *mid_) y = run(*block, y, whole_condition);
  for (const auto& level : *up_) {
    y = at::cat({y, skipped.back()}, 1);
    skipped.pop_back();
    y = run(*level->first, y, whole_condition);
    y = run(*level->second, y, whole_condition);
    y = (*level->resample)(y);
  }
  return (*final_conv_)((*final_block_)(y)).transpose(1, 2);
}

}  // namespace lerobot::policy
