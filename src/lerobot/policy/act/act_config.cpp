#include "lerobot/policy/act/act_config.h"

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lerobot/nn/resnet.h"
#include "lerobot/policy/pretrained_backbone.h"

namespace lerobot::policy {

using config::FeatureType;

const Feature* ActConfig::robot_state() const {
  return find_feature(input_features, FeatureType::kState, "observation.state");
}

const Feature* ActConfig::environment_state() const {
  return find_feature(input_features, FeatureType::kEnv);
}

const Feature* ActConfig::action() const {
  return find_feature(output_features, FeatureType::kAction, "action");
}

std::vector<const Feature*> ActConfig::cameras() const { return find_cameras(input_features); }

std::vector<std::string> ActConfig::feature_problems() const {
  std::vector<std::string> problems;
  const auto cameras = this->cameras();
  if (cameras.empty() && !environment_state())
    problems.push_back(
        "policy.input_features: ACT needs at least one camera or observation.environment_state "
        "among its inputs");
  if (!cameras.empty() && dim_model % 4 != 0)
    problems.push_back(fmt::format(
        "policy.dim_model: must be a multiple of 4 with cameras (sines and cosines of two axes), "
        "found {}",
        dim_model));
  if (!action())
    problems.push_back("policy.output_features: ACT needs an output named action of type ACTION");
  for (const Feature* vector : {robot_state(), environment_state(), action()})
    require_vector(problems, vector);
  for (const Feature* camera : cameras) require_rgb(problems, *camera);
  return problems;
}

std::vector<std::string> ActConfig::validate() const {
  std::vector<std::string> problems;
  const auto require = [&](bool holds, std::string message) {
    if (!holds) problems.push_back(std::move(message));
  };
  require(n_obs_steps == 1,
          fmt::format("policy.n_obs_steps: ACT looks at one observation only: expected 1, found {}",
                      n_obs_steps));
  require(
      n_action_steps <= chunk_size,
      fmt::format("policy.n_action_steps: at most policy.chunk_size ({}) can be executed of one "
                  "prediction, found {}",
                  chunk_size, n_action_steps));
  require(!temporal_ensemble_coeff || n_action_steps == 1,
          fmt::format("policy.n_action_steps: must be 1 with policy.temporal_ensemble_coeff, which "
                      "needs a prediction at every step; found {}",
                      n_action_steps));
  const nn::ResNetVariant* backbone = nn::find_resnet(vision_backbone);
  require(backbone != nullptr,
          fmt::format("policy.vision_backbone: expected resnet18, resnet34, resnet50, resnet101 or "
                      "resnet152, found {}",
                      vision_backbone));
  require(!replace_final_stride_with_dilation || !backbone || backbone->bottleneck,
          fmt::format("policy.replace_final_stride_with_dilation: {} has no dilated blocks; use "
                      "resnet50 or larger, or false",
                      vision_backbone));
  if (backbone && pretrained_backbone_weights) {
    if (auto problem = backbone_weights_problem(vision_backbone, *pretrained_backbone_weights))
      problems.push_back("policy.pretrained_backbone_weights: " + *problem);
  }
  require(n_heads > 0 && dim_model % n_heads == 0,
          fmt::format("policy.n_heads: must divide policy.dim_model ({}), found {}", dim_model,
                      n_heads));
  require(feedforward_activation != "glu",
          "policy.feedforward_activation: glu halves the width, which the next layer does not "
          "expect; use relu or gelu");
  require_known_types(problems, normalization_mapping);
  // Training fills features in from the dataset; those that are given must fit already.
  if (!input_features.empty() && !output_features.empty()) {
    for (std::string& problem : feature_problems()) problems.push_back(std::move(problem));
  }
  return problems;
}

config::DeltaIndices ActConfig::delta_indices() const {
  config::DeltaIndices indices;
  indices.action.resize(static_cast<std::size_t>(chunk_size));
  std::iota(indices.action.begin(), indices.action.end(), 0);
  return indices;
}

config::OptimizerConfig ActConfig::optimizer_preset() const {
  config::AdamWConfig preset;
  preset.lr = optimizer_lr;
  preset.weight_decay = optimizer_weight_decay;
  return preset;
}

std::unique_ptr<config::PolicyConfig> ActConfig::clone() const {
  return std::make_unique<ActConfig>(*this);
}

config::HelpTexts option_help(const ActConfig*) {
  using config::at_least;
  using config::half_open;
  using config::one_of;
  return {
      {"chunk_size", "actions that one prediction holds", at_least(1)},
      {"n_action_steps", "actions of a prediction that are executed before the next one",
       at_least(1)},
      {"normalization_mapping",
       "feature type (VISUAL, STATE, ENV, ACTION) to mode: IDENTITY, MEAN_STD, MIN_MAX, QUANTILES, "
       "QUANTILE10"},
      {"vision_backbone", "image encoder",
       one_of({"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"})},
      {"pretrained_backbone_weights",
       "torchvision's name of the image encoder's first weights; null: random"},
      {"replace_final_stride_with_dilation",
       "keep the last stage's resolution (resnet50 and larger)"},
      {"pre_norm", "normalise before attention and feed-forward instead of after"},
      {"dim_model", "width of the transformer", at_least(4)},
      {"n_heads", "attention heads", at_least(1)},
      {"dim_feedforward", "width of the feed-forward layers", at_least(1)},
      {"feedforward_activation", "activation of the feed-forward layers",
       one_of({"relu", "gelu", "glu"})},
      {"n_encoder_layers", "layers of the encoder", at_least(0)},
      {"n_decoder_layers", "layers of the decoder", at_least(0)},
      {"use_vae", "train with the variational objective"},
      {"latent_dim", "size of the latent", at_least(1)},
      {"n_vae_encoder_layers", "layers of the variational encoder", at_least(0)},
      {"temporal_ensemble_coeff",
       "m of the weights exp(-m i) that average overlapping predictions; null: no averaging"},
      {"dropout", "probability that training drops an activation", half_open(0, 1)},
      {"kl_weight", "weight of the KL divergence in the loss", at_least(0)},
      {"optimizer_lr", "learning rate of the training preset", at_least(0)},
      {"optimizer_weight_decay", "weight decay of the training preset", at_least(0)},
      {"optimizer_lr_backbone", "learning rate of the image encoder in the training preset",
       at_least(0)},
  };
}

}  // namespace lerobot::policy
