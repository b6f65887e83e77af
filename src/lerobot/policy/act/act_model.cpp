#include "lerobot/policy/act/act_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/init.h"

namespace lerobot::policy {
namespace {

std::int64_t size_of(const Feature* feature) { return feature->second.shape[0]; }

std::shared_ptr<nn::Linear> linear(std::int64_t in, std::int64_t out) {
  return std::make_shared<nn::Linear>(in, out);
}

}  // namespace

// The order of these statements is the order of LeRobot's parameters and of its random draws.
Act::Act(const ActConfig& config) : Callable("ACT"), config_(config) {
  const std::int64_t size = config_.dim_model;
  const auto* state = config_.robot_state();
  const auto* environment = config_.environment_state();
  const std::int64_t action_size = size_of(config_.action());
  if (config_.use_vae) {
    vae_encoder_ = register_module(
        "vae_encoder", std::make_shared<ActEncoder>(config_, config_.n_vae_encoder_layers));
    vae_encoder_cls_embed_ =
        register_module("vae_encoder_cls_embed", std::make_shared<nn::Embedding>(1, size));
    if (state)
      vae_encoder_robot_state_input_proj_ =
          register_module("vae_encoder_robot_state_input_proj", linear(size_of(state), size));
    vae_encoder_action_input_proj_ =
        register_module("vae_encoder_action_input_proj", linear(action_size, size));
    vae_encoder_latent_output_proj_ =
        register_module("vae_encoder_latent_output_proj", linear(size, 2 * config_.latent_dim));
    const std::int64_t tokens = 1 + (state ? 1 : 0) + config_.chunk_size;
    vae_encoder_pos_enc_ =
        register_buffer("vae_encoder_pos_enc", sinusoidal_positions(tokens, size).unsqueeze(0));
  }

  const nn::ResNetVariant* variant = nn::find_resnet(config_.vision_backbone);
  if (!config_.cameras().empty())
    backbone_ = register_module(
        "backbone",
        std::make_shared<nn::ResNet>(
            *variant,
            nn::ResNetOptions{.dilate_last_stage = config_.replace_final_stride_with_dilation}));

  encoder_ =
      register_module("encoder", std::make_shared<ActEncoder>(config_, config_.n_encoder_layers));
  decoder_ = register_module("decoder", std::make_shared<ActDecoder>(config_));

  if (state)
    encoder_robot_state_input_proj_ =
        register_module("encoder_robot_state_input_proj", linear(size_of(state), size));
  if (environment)
    encoder_env_state_input_proj_ =
        register_module("encoder_env_state_input_proj", linear(size_of(environment), size));
  encoder_latent_input_proj_ =
      register_module("encoder_latent_input_proj", linear(config_.latent_dim, size));
  if (backbone_)
    encoder_img_feat_input_proj_ = register_module(
        "encoder_img_feat_input_proj",
        std::make_shared<nn::Conv2d>(variant->features(), size, nn::Conv2dOptions{}));
  encoder_1d_feature_pos_embed_ = register_module(
      "encoder_1d_feature_pos_embed",
      std::make_shared<nn::Embedding>(1 + (state ? 1 : 0) + (environment ? 1 : 0), size));
  decoder_pos_embed_ = register_module("decoder_pos_embed",
                                       std::make_shared<nn::Embedding>(config_.chunk_size, size));
  action_head_ = register_module("action_head", linear(size, action_size));

  for (const nn::Module* part :
       {static_cast<nn::Module*>(encoder_.get()), static_cast<nn::Module*>(decoder_.get())}) {
    for (const auto& [name, parameter] : part->named_parameters())
      if (parameter.dim() > 1) nn::init::xavier_uniform(parameter);
  }
}

at::Tensor Act::latent_parameters(const dataset::Batch& batch) {
  const at::Tensor& action = batch.at("action");
  const at::Tensor& action_is_pad = batch.at("action_is_pad");
  const std::int64_t size = batch.at("action").size(0);
  std::vector<at::Tensor> tokens{
      vae_encoder_cls_embed_->weight.unsqueeze(0).expand({1, size, config_.dim_model})};
  if (vae_encoder_robot_state_input_proj_)
    tokens.push_back(
        (*vae_encoder_robot_state_input_proj_)(batch.at("observation.state")).unsqueeze(0));
  const auto unpadded = static_cast<std::int64_t>(tokens.size());
  tokens.push_back((*vae_encoder_action_input_proj_)(action.transpose(0, 1).contiguous()));

  const at::Tensor padding =
      at::cat({at::zeros({size, unpadded}, action_is_pad.options()), action_is_pad}, 1);
  const at::Tensor positions = vae_encoder_pos_enc_.transpose(0, 1);
  const at::Tensor summary =
      (*vae_encoder_)(at::cat(tokens, 0), positions, padding, /*wanted=*/1).squeeze(0);
  return (*vae_encoder_latent_output_proj_)(summary);
}

const at::Tensor& Act::image_positions(const at::Tensor& map) {
  at::Tensor& positions = image_positions_[{map.size(2), map.size(3)}];
  if (!positions.defined())
    positions = sinusoidal_positions_2d(map.size(2), map.size(3), config_.dim_model / 2);
  if (positions.device() != map.device()) positions = positions.to(map.device());
  return positions;
}

ActOutput Act::forward(const dataset::Batch& batch) {
  ActOutput output;
  const auto cameras = config_.cameras();
  const at::Tensor& first_input =
      batch.at(cameras.empty() ? config_.environment_state()->first : cameras[0]->first);
  const std::int64_t size = first_input.size(0);

  at::Tensor latent;
  if (config_.use_vae && is_training()) {
    const at::Tensor parameters = latent_parameters(batch);
    output.mu = parameters.narrow(1, 0, config_.latent_dim);
    output.log_sigma_x2 = parameters.narrow(1, config_.latent_dim, config_.latent_dim);
    latent = output.mu + (output.log_sigma_x2 / 2).exp() * at::randn_like(output.mu);
  } else {
    latent = at::zeros({size, config_.latent_dim}, first_input.options().dtype(at::kFloat));
  }

  std::vector<at::Tensor> tokens{(*encoder_latent_input_proj_)(latent).unsqueeze(0)};
  std::vector<at::Tensor> positions{encoder_1d_feature_pos_embed_->weight.unsqueeze(1)};
  if (encoder_robot_state_input_proj_)
    tokens.push_back(
        (*encoder_robot_state_input_proj_)(batch.at("observation.state")).unsqueeze(0));
  if (encoder_env_state_input_proj_)
    tokens.push_back((*encoder_env_state_input_proj_)(batch.at(config_.environment_state()->first))
                         .unsqueeze(0));
  for (const auto* camera : cameras) {
    const at::Tensor map = (*backbone_)(batch.at(camera->first));
    const at::Tensor projected = (*encoder_img_feat_input_proj_)(map);
    tokens.push_back(projected.flatten(2).permute({2, 0, 1}));
    positions.push_back(image_positions(map).unsqueeze(1));
  }
  const at::Tensor encoder_positions = at::cat(positions, 0);
  const at::Tensor encoder_in = at::cat(tokens, 0);
  const at::Tensor memory =
      (*encoder_)(encoder_in, encoder_positions, at::Tensor(), encoder_in.size(0));

  const at::Tensor queries =
      at::zeros({config_.chunk_size, 1, config_.dim_model}, encoder_positions.options());
  const at::Tensor decoded =
      (*decoder_)(queries, decoder_pos_embed_->weight.unsqueeze(1), memory, encoder_positions);
  output.actions = (*action_head_)(decoded.expand({config_.chunk_size, size, config_.dim_model}))
                       .transpose(0, 1);
  return output;
}

}  // namespace lerobot::policy
