#include "lerobot/policy/diffusion/diffusion_model.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"

namespace lerobot::policy {
namespace {

constexpr const char* kState = "observation.state";
constexpr const char* kEnvironmentState = "observation.environment_state";

[[noreturn]] void refuse(const std::string& name, const std::string& expected,
                         const at::Tensor& found) {
  fail("{}: expected {}, found [{}]", name, expected, fmt::join(found.sizes(), ", "));
}

}  // namespace

DiffusionModel::DiffusionModel(const DiffusionConfig& config, bool load_pretrained_backbone)
    : Module("DiffusionModel"), config_(config), schedule_(config) {
  const std::size_t cameras = config_.cameras().size();
  const auto encoder = [&] {
    return std::make_shared<DiffusionRgbEncoder>(config_, load_pretrained_backbone);
  };
  if (cameras > 0 && config_.use_separate_rgb_encoder_per_camera) {
    camera_encoders_ =
        register_module("rgb_encoder", std::make_shared<nn::ModuleList<DiffusionRgbEncoder>>());
    for (std::size_t i = 0; i < cameras; ++i) camera_encoders_->push_back(encoder());
  } else if (cameras > 0) {
    shared_encoder_ = register_module("rgb_encoder", encoder());
  }
  unet_ = register_module("unet", std::make_shared<DiffusionUnet>(config_));
}

const at::Tensor& DiffusionModel::state_of(const dataset::Batch& batch,
                                           const Feature& feature) const {
  const bool is_environment = feature.second.type == config::FeatureType::kEnv;
  const char* const name = is_environment ? kEnvironmentState : kState;
  const at::Tensor& state = batch.at(name);
  const std::int64_t size = feature.second.shape[0];
  if (state.dim() != 3 || state.size(1) != config_.n_obs_steps || state.size(2) != size)
    refuse(name, fmt::format("a batch of observations [B, {}, {}]", config_.n_obs_steps, size),
           state);
  return state;
}

at::Tensor DiffusionModel::images_of(const dataset::Batch& batch, const Feature& camera) const {
  at::Tensor images = batch.at(camera.first);
  // A window of one frame of a video has no time axis.
  if (images.dim() == 4 && config_.n_obs_steps == 1) images = images.unsqueeze(1);
  if (images.dim() != 5 || images.size(1) != config_.n_obs_steps || images.size(2) != 3)
    refuse(camera.first,
           fmt::format("a batch of observations [B, {}, 3, height, width]", config_.n_obs_steps),
           images);
  return images;
}

at::Tensor DiffusionModel::image_features(const dataset::Batch& batch) {
  std::vector<at::Tensor> images;
  for (const Feature* camera : config_.cameras()) images.push_back(images_of(batch, *camera));
  const std::int64_t samples = images.front().size(0);
  const std::int64_t observations = config_.n_obs_steps;
  if (shared_encoder_)
    return (*shared_encoder_)(at::stack(images, 2).flatten(0, 2)).view({samples, observations, -1});
  std::vector<at::Tensor> features;
  for (std::size_t i = 0; i < images.size(); ++i)
    features.push_back(
        (*camera_encoders_)[i](images[i].flatten(0, 1)).view({samples, observations, -1}));
  return at::cat(features, -1);
}

at::Tensor DiffusionModel::condition(const dataset::Batch& batch) {
  std::vector<at::Tensor> parts{state_of(batch, *config_.robot_state())};
  if (shared_encoder_ || camera_encoders_) parts.push_back(image_features(batch));
  if (const Feature* environment = config_.environment_state())
    parts.push_back(state_of(batch, *environment));
  return at::cat(parts, -1).flatten(1);
}

at::Tensor DiffusionModel::loss(const dataset::Batch& batch) {
  const at::Tensor& action = batch.at("action");
  const at::Tensor& is_pad = batch.at("action_is_pad");
  const std::int64_t width = config_.action()->second.shape[0];
  if (action.dim() != 3 || action.size(1) != config_.horizon || action.size(2) != width)
    refuse("action", fmt::format("a batch of actions [B, {}, {}]", config_.horizon, width), action);

  const at::Tensor whole_condition = condition(batch);
  const auto device = at::TensorOptions().device(action.device());
  const at::Tensor noise = at::randn(action.sizes(), device.dtype(at::kFloat));
  const at::Tensor steps =
      at::randint(0, config_.num_train_timesteps, {action.size(0)}, device.dtype(at::kLong));
  const at::Tensor noisy = schedule_.add_noise(action, noise, steps);
  const at::Tensor output = (*unet_)(noisy, steps, whole_condition);
  const at::Tensor& target = config_.prediction_type == "epsilon" ? noise : action;
  const at::Tensor error = at::mse_loss(output, target, at::Reduction::None);
  if (!config_.do_mask_loss_for_padding) return error.mean();
  const at::Tensor valid = at::logical_not(is_pad).unsqueeze(-1);
  const at::Tensor count = valid.sum() * width;
  return (error * valid).sum() / count.clamp_min(1);
}

at::Tensor DiffusionModel::generate(const dataset::Batch& batch) {
  const at::Tensor whole_condition = condition(batch);
  const std::int64_t samples = whole_condition.size(0);
  const std::int64_t count = config_.num_inference_steps.value_or(config_.num_train_timesteps);
  const auto options = unet_->named_parameters().front().second.options().requires_grad(false);
  at::Tensor x = at::randn({samples, config_.horizon, config_.action()->second.shape[0]}, options);
  for (const std::int64_t t : schedule_.inference_steps(count)) {
    const at::Tensor steps = at::full({samples}, t, options.dtype(at::kLong));
    const at::Tensor output = (*unet_)(x, steps, whole_condition);
    const auto [mean, deviation] = schedule_.denoise(x, output, t, count);
    x = deviation == 0 ? mean : mean + deviation * at::randn(output.sizes(), output.options());
  }
  const std::int64_t first = config_.n_obs_steps - 1;
  return x.narrow(1, first, std::min(config_.n_action_steps, config_.horizon - first));
}

}  // namespace lerobot::policy
