#include "lerobot/policy/diffusion/diffusion_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lerobot/nn/resnet.h"
#include "lerobot/policy/pretrained_backbone.h"

namespace lerobot::policy {
namespace {

using config::FeatureType;

/// Of a convolution block's last layer, whatever n_groups says.
constexpr std::int64_t kFinalGroups = 8;
/// More is a typing error, and would end in a failed allocation.
constexpr double kMostParameters = 1e11;
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;
constexpr double kMostSteps = 1e6;
constexpr double kMostChannels = 1 << 20;
constexpr double kMostKernel = 1023;

/// Collects one message for every rule that does not hold.
class Rules {
 public:
  explicit Rules(std::vector<std::string>& problems) : problems_(problems) {}

  template <class... Arguments>
  void require(bool holds, fmt::format_string<Arguments...> message, Arguments&&... arguments) {
    if (!holds) problems_.push_back(fmt::format(message, std::forward<Arguments>(arguments)...));
  }

 private:
  std::vector<std::string>& problems_;
};

bool is_size(const std::optional<std::vector<std::int64_t>>& shape) {
  return shape && shape->size() == 2 && (*shape)[0] > 0 && (*shape)[1] > 0;
}

void check_images(Rules& rules, const DiffusionConfig& c) {
  const auto require_size = [&](const char* option, const auto& shape) {
    if (shape && !is_size(shape))
      rules.require(false, "policy.{}: expected [height, width] with numbers above 0, found [{}]",
                    option, fmt::join(*shape, ", "));
  };
  require_size("resize_shape", c.resize_shape);
  // A crop that follows from the resized shape can vanish by rounding down.
  if (is_size(c.resize_shape) && c.crop_shape && !is_size(c.crop_shape))
    rules.require(
        false,
        "policy.crop_ratio: {} of the resized shape [{}] leaves no pixels: a larger one is "
        "needed",
        c.crop_ratio, fmt::join(*c.resize_shape, ", "));
  else
    require_size("crop_shape", c.crop_shape);
  const nn::ResNetVariant* backbone = nn::find_resnet(c.vision_backbone);
  rules.require(backbone != nullptr,
                "policy.vision_backbone: expected resnet18, resnet34, resnet50, resnet101 or "
                "resnet152, found {}",
                c.vision_backbone);
  if (!backbone || !c.pretrained_backbone_weights) return;
  if (auto problem = backbone_weights_problem(c.vision_backbone, *c.pretrained_backbone_weights))
    rules.require(false, "policy.pretrained_backbone_weights: {}", *problem);
  rules.require(
      !c.use_group_norm,
      "policy.use_group_norm: the pretrained weights {} belong to batch normalisation; use "
      "--policy.pretrained_backbone_weights=null or --policy.use_group_norm=false",
      *c.pretrained_backbone_weights);
}

/// Roughly, in double: the sizes have no upper bound yet.
double parameter_count(const DiffusionConfig& c) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double keypoints = 2 * number(c.spatial_softmax_num_keypoints);
  const double cameras = number(static_cast<std::int64_t>(c.cameras().size()));
  double observation = number(c.robot_state()->second.shape[0]) + keypoints * cameras;
  if (const Feature* environment = c.environment_state())
    observation += number(environment->second.shape[0]);
  const double embedding = number(c.diffusion_step_embed_dim);
  const double condition = embedding + number(c.n_obs_steps) * observation;
  const double film = c.use_film_scale_modulation ? 2 : 1;
  const auto block = [&](double in, double out) {
    return (in + out) * out * number(c.kernel_size) + film * out * condition + in * out;
  };
  double sum = cameras * keypoints * keypoints + 8 * embedding * embedding;
  double in = number(c.action()->second.shape[0]);
  for (const std::int64_t size : c.down_dims) {
    const double out = number(size);
    // Once on the way down and, with twice the channels coming in, once on the way up.
    sum += block(in, out) + block(2 * out, in) + 2 * block(out, out);
    in = out;
  }
  return sum + 2 * block(in, in);
}

void check_unet(Rules& rules, const DiffusionConfig& c) {
  constexpr std::size_t kMostLevels = 16;
  if (c.down_dims.empty() || c.down_dims.size() > kMostLevels)
    return rules.require(false, "policy.down_dims: expected 1 to {} numbers, found {}", kMostLevels,
                         c.down_dims.size());
  const std::int64_t factor = std::int64_t{1} << c.down_dims.size();
  rules.require(c.horizon > 0 && c.horizon % factor == 0,
                "policy.horizon: must be a multiple of {} (2 for each of the {} numbers in "
                "policy.down_dims, which halve it), found {}",
                factor, c.down_dims.size(), c.horizon);
  rules.require(c.n_groups > 0, "policy.n_groups: expected at least 1, found {}", c.n_groups);
  for (const std::int64_t size : c.down_dims)
    rules.require(
        size > 0 && (c.n_groups <= 0 || size % c.n_groups == 0),
        "policy.down_dims: every number must be a multiple of policy.n_groups ({}), found "
        "{}",
        c.n_groups, size);
  rules.require(c.down_dims[0] % kFinalGroups == 0,
                "policy.down_dims: the first number must be a multiple of {} (groups of the last "
                "layer), found {}",
                kFinalGroups, c.down_dims[0]);
  rules.require(
      c.kernel_size > 0 && c.kernel_size % 2 == 1,
      "policy.kernel_size: must be odd, lest the convolutions change the horizon; found {}",
      c.kernel_size);
  rules.require(c.diffusion_step_embed_dim >= 4 && c.diffusion_step_embed_dim % 2 == 0,
                "policy.diffusion_step_embed_dim: must be even (sines and cosines) and at least 4, "
                "found {}",
                c.diffusion_step_embed_dim);
  rules.require(
      !c.compile_model,
      "policy.compile_model: there is no compiler here, the network runs as it is; use "
      "--policy.compile_model=false (with --policy.path, weights of a compiled one are read)");
}

void check_noise(Rules& rules, const DiffusionConfig& c) {
  rules.require(
      c.noise_scheduler_type != "DDIM" ||
          (c.beta_schedule != "sigmoid" && c.beta_schedule != "laplace"),
      "policy.beta_schedule: {} needs policy.noise_scheduler_type=DDPM; DDIM knows linear, "
      "scaled_linear and squaredcos_cap_v2",
      c.beta_schedule);
  if (c.num_inference_steps)
    rules.require(*c.num_inference_steps >= 1 && *c.num_inference_steps <= c.num_train_timesteps,
                  "policy.num_inference_steps: expected 1 to policy.num_train_timesteps ({}) or "
                  "null, found {}",
                  c.num_train_timesteps, *c.num_inference_steps);
  rules.require(c.optimizer_betas.size() == 2,
                "policy.optimizer_betas: expected two numbers, found {}", c.optimizer_betas.size());
}

}  // namespace

const Feature* DiffusionConfig::robot_state() const {
  return find_feature(input_features, FeatureType::kState, "observation.state");
}

const Feature* DiffusionConfig::environment_state() const {
  return find_feature(input_features, FeatureType::kEnv);
}

const Feature* DiffusionConfig::action() const {
  return find_feature(output_features, FeatureType::kAction, "action");
}

std::vector<const Feature*> DiffusionConfig::cameras() const {
  return find_cameras(input_features);
}

std::array<std::int64_t, 2> DiffusionConfig::image_size() const {
  if (crop_shape) return {(*crop_shape)[0], (*crop_shape)[1]};
  if (resize_shape) return {(*resize_shape)[0], (*resize_shape)[1]};
  const auto& shape = cameras().front()->second.shape;
  return {shape[1], shape[2]};
}

std::int64_t DiffusionConfig::condition_size() const {
  std::int64_t size = robot_state()->second.shape[0];
  size += 2 * spatial_softmax_num_keypoints * static_cast<std::int64_t>(cameras().size());
  if (const Feature* environment = environment_state()) size += environment->second.shape[0];
  return n_obs_steps * size;
}

void DiffusionConfig::derive() {
  if (!resize_shape) return;
  crop_shape.reset();
  if (!is_size(resize_shape) || !(crop_ratio < 1.0)) return;
  crop_shape.emplace();
  for (const std::int64_t side : *resize_shape)
    crop_shape->push_back(static_cast<std::int64_t>(static_cast<double>(side) * crop_ratio));
}

std::vector<std::string> DiffusionConfig::feature_problems() const {
  std::vector<std::string> problems;
  Rules rules(problems);
  const auto cameras = this->cameras();
  rules.require(robot_state() != nullptr,
                "policy.input_features: diffusion needs an input named observation.state of type "
                "STATE");
  rules.require(!cameras.empty() || environment_state() != nullptr,
                "policy.input_features: diffusion needs at least one camera or "
                "observation.environment_state among its inputs");
  rules.require(action() != nullptr,
                "policy.output_features: diffusion needs an output named action of type ACTION");
  for (const Feature* vector : {robot_state(), environment_state(), action()})
    require_vector(problems, vector);
  for (const Feature* camera : cameras) require_rgb(problems, *camera);
  if (!problems.empty()) return problems;

  for (const Feature* camera : cameras) {
    const auto& shape = camera->second.shape;
    const auto& first = *cameras.front();
    rules.require(shape == first.second.shape,
                  "policy.input_features: all cameras must have one shape, found {} [{}] and {} "
                  "[{}]",
                  first.first, fmt::join(first.second.shape, ", "), camera->first,
                  fmt::join(shape, ", "));
    if (crop_shape && !resize_shape)
      rules.require((*crop_shape)[0] <= shape[1] && (*crop_shape)[1] <= shape[2],
                    "policy.crop_shape: [{}] is larger than the images of {} [{}, {}]",
                    fmt::join(*crop_shape, ", "), camera->first, shape[1], shape[2]);
  }
  if (!cameras.empty() && !use_group_norm) {
    constexpr std::int64_t kLeast = 32;  // pixels that become one of the backbone's map
    const auto [height, width] = image_size();
    rules.require(
        height > kLeast || width > kLeast,
        "policy.use_group_norm: images of {}x{} become a map of one pixel, of which batch "
        "normalisation can take no statistics; use larger images or "
        "--policy.use_group_norm=true",
        height, width);
  }
  if (!cameras.empty()) {
    const auto [height, width] = image_size();
    rules.require(height <= kMostPixels / width,
                  "policy.input_features: images of {}x{} are too large: at most {} pixels", height,
                  width, kMostPixels);
  }
  const double parameters = parameter_count(*this);
  rules.require(parameters <= kMostParameters,
                "policy.down_dims: this network would have about {:.3g} parameters; at most {:.0g} "
                "are possible",
                parameters, kMostParameters);
  return problems;
}

std::vector<std::string> DiffusionConfig::validate() const {
  std::vector<std::string> problems;
  Rules rules(problems);
  rules.require(n_obs_steps <= horizon,
                "policy.n_obs_steps: a prediction of policy.horizon ({}) actions begins with the "
                "first observation and must reach the last one, found {}",
                horizon, n_obs_steps);
  check_images(rules, *this);
  check_unet(rules, *this);
  check_noise(rules, *this);
  require_known_types(problems, normalization_mapping);
  // Training fills features in from the dataset; those that are given must fit already.
  if (problems.empty() && !input_features.empty() && !output_features.empty())
    problems = feature_problems();
  return problems;
}

config::DeltaIndices DiffusionConfig::delta_indices() const {
  config::DeltaIndices indices;
  for (std::int64_t delta = 1 - n_obs_steps; delta <= 0; ++delta)
    indices.observation.push_back(delta);
  indices.image = indices.observation;
  for (std::int64_t i = 0; i < horizon; ++i) indices.action.push_back(1 - n_obs_steps + i);
  return indices;
}

config::OptimizerConfig DiffusionConfig::optimizer_preset() const {
  config::AdamConfig preset;
  preset.lr = optimizer_lr;
  preset.weight_decay = optimizer_weight_decay;
  preset.betas = optimizer_betas;
  preset.eps = optimizer_eps;
  return preset;
}

std::optional<config::SchedulerConfig> DiffusionConfig::scheduler_preset() const {
  config::DiffuserSchedulerConfig preset;
  preset.num_warmup_steps = scheduler_warmup_steps;
  preset.name = scheduler_name;
  return preset;
}

std::unique_ptr<config::PolicyConfig> DiffusionConfig::clone() const {
  return std::make_unique<DiffusionConfig>(*this);
}

config::HelpTexts option_help(const DiffusionConfig*) {
  using config::above;
  using config::at_least;
  using config::between;
  using config::half_open;
  using config::one_of;
  return {
      {"horizon", "actions that one prediction holds, from the first observation on",
       between(1, kMostSteps)},
      {"n_action_steps", "actions of a prediction that are executed before the next one",
       at_least(1)},
      {"normalization_mapping",
       "feature type (VISUAL, STATE, ENV, ACTION) to mode: IDENTITY, MEAN_STD, MIN_MAX, QUANTILES, "
       "QUANTILE10"},
      {"drop_n_last_frames", "frames at an episode's end that are not sampled", at_least(0)},
      {"vision_backbone", "image encoder",
       one_of({"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"})},
      {"resize_shape", "[height, width] to which images are resized before the crop; null: not",
       between(1, kMostChannels)},
      {"crop_ratio", "part of each side of the resized image that the crop keeps",
       config::Limits{.above = 0.0, .most = 1.0}},
      {"crop_shape",
       "[height, width] of the crop; null: none. With resize_shape it follows from crop_ratio",
       between(0, kMostChannels)},
      {"crop_is_random", "crop at random in training (else, and always in evaluation, the centre)"},
      {"pretrained_backbone_weights",
       "torchvision's name of the image encoder's first weights; null: random"},
      {"use_group_norm", "normalise groups of channels in the image encoder instead of batches"},
      {"spatial_softmax_num_keypoints", "points that the image encoder finds in an image",
       between(1, kMostChannels)},
      {"use_separate_rgb_encoder_per_camera", "one image encoder a camera instead of one for all"},
      {"down_dims", "channels of the U-Net's levels; each level halves the horizon",
       between(1, kMostChannels)},
      {"kernel_size", "of the U-Net's convolutions; odd", between(1, kMostKernel)},
      {"n_groups", "groups of the U-Net's normalisation", between(1, kMostChannels)},
      {"diffusion_step_embed_dim", "size of the embedding of the noise step; even",
       between(4, kMostChannels)},
      {"use_film_scale_modulation", "let the condition scale the U-Net's channels, not only shift"},
      {"gradient_checkpointing",
       "compute the U-Net's blocks a second time in backward, which saves memory"},
      {"noise_scheduler_type", "how actions are made from noise", one_of({"DDPM", "DDIM"})},
      {"num_train_timesteps", "noise steps of training", between(1, kMostSteps)},
      {"beta_schedule", "how the noise grows from step to step",
       one_of({"squaredcos_cap_v2", "linear", "scaled_linear", "sigmoid", "laplace"})},
      {"beta_start", "first beta of linear, scaled_linear and sigmoid", half_open(0, 1)},
      {"beta_end", "last beta of linear, scaled_linear and sigmoid", half_open(0, 1)},
      {"prediction_type", "what the U-Net predicts: the noise or the actions",
       one_of({"epsilon", "sample"})},
      {"clip_sample", "clip predicted actions at every noise step"},
      {"clip_sample_range", "largest absolute value that is left", above(0)},
      {"num_inference_steps", "noise steps of a prediction; null: those of training", at_least(1)},
      {"compile_model", "LeRobot's torch.compile; not available here"},
      {"compile_mode", "mode of torch.compile; unused here"},
      {"do_mask_loss_for_padding", "leave actions outside the episode out of the loss"},
      {"optimizer_lr", "learning rate of the training preset", at_least(0)},
      {"optimizer_betas", "Adam's two decays in the training preset", half_open(0, 1)},
      {"optimizer_eps", "Adam's epsilon in the training preset", at_least(0)},
      {"optimizer_weight_decay", "weight decay of the training preset", at_least(0)},
      {"scheduler_name", "schedule of the training preset",
       one_of({"cosine", "linear", "cosine_with_restarts", "polynomial", "constant",
               "constant_with_warmup"})},
      {"scheduler_warmup_steps", "steps in which the learning rate rises at first", at_least(0)},
  };
}

}  // namespace lerobot::policy
