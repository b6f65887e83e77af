#include "lerobot/config/option_help.h"

#include <algorithm>

#include <fmt/format.h>

#include "lerobot/base/json.h"
#include "lerobot/config/train_config.h"

namespace lerobot::config {
namespace {

constexpr auto kRequired = OptionTrait::kRequired;
constexpr auto kNewer = OptionTrait::kNewer;
constexpr auto kUnrecorded = OptionTrait::kUnrecorded;
constexpr auto kRecorded = OptionTrait::kRecorded;

std::string number(double value) {
  if (value == static_cast<double>(static_cast<long long>(value)))
    return fmt::format("{}", static_cast<long long>(value));
  return python_float(value);
}

/// A rate below 1 of a moving average.
HelpText betas_help() {
  return {"betas", "decay rates of the two moment estimates", half_open(0, 1)};
}

HelpTexts adam_help() {
  return {
      {"lr", "learning rate", at_least(0)},
      {"weight_decay", "weight decay", at_least(0)},
      {"grad_clip_norm", "largest norm of the gradient; 0 does not clip", at_least(0)},
      betas_help(),
      {"eps", "added to the denominator", above(0)},
  };
}

const Limits kSteps = at_least(0);

}  // namespace

bool Limits::allows(double value) const {
  return !(least && value < *least) && !(above && value <= *above) && !(most && value > *most) &&
         !(below && value >= *below);
}

bool Limits::allows(std::string_view value) const {
  return choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end();
}

std::string Limits::text() const {
  if (!choices.empty()) return fmt::format("one of {}", fmt::join(choices, ", "));
  std::string text;
  const auto add = [&](std::string_view words, const std::optional<double>& bound) {
    if (!bound) return;
    if (!text.empty()) text += " and ";
    text += fmt::format("{} {}", words, number(*bound));
  };
  add("at least", least);
  add("above", above);
  add("at most", most);
  add("below", below);
  return text;
}

Limits at_least(double least) { return {.least = least}; }
Limits above(double bound) { return {.above = bound}; }
Limits between(double least, double most) { return {.least = least, .most = most}; }
Limits half_open(double least, double below) { return {.least = least, .below = below}; }
Limits one_of(std::initializer_list<std::string_view> choices) { return {.choices = choices}; }

HelpTexts option_help(const PolicyConfig*) {
  return {
      {"n_obs_steps", "observations that the policy sees at once", at_least(1)},
      {"input_features", "inputs {name: {type, shape}}; default: from the dataset"},
      {"output_features", "outputs {name: {type, shape}}; default: from the dataset"},
      {"device", "cpu, cuda or cuda:N; default: the best there is"},
      {"use_amp", "use --accelerator.mixed_precision=bf16 instead"},
      {"use_peft", "the checkpoint is an adapter"},
      {"push_to_hub", "publish the trained policy to policy.repo_id when training ends"},
      {"repo_id", "repository to publish to, OWNER/NAME"},
      {"private_", "publish to a private repository"},
      {"tags", "tags of the published policy"},
      {"license", "licence of the published policy"},
      {"pretrained_path", "folder of the weights to start from; --policy.path sets it"},
      {"pretrained_revision", "branch, tag or commit of --policy.path=OWNER/NAME"},
  };
}

HelpTexts option_help(const AdamConfig*) { return adam_help(); }
HelpTexts option_help(const AdamWConfig*) { return adam_help(); }

HelpTexts option_help(const SgdConfig*) {
  return {
      {"lr", "learning rate", at_least(0)},
      {"weight_decay", "weight decay", at_least(0)},
      {"grad_clip_norm", "largest norm of the gradient; 0 does not clip", at_least(0)},
      {"momentum", "momentum", at_least(0)},
      {"dampening", "dampening of the momentum"},
      {"nesterov", "Nesterov momentum"},
  };
}

HelpTexts option_help(const ConstantWithWarmupConfig*) {
  return {{"num_warmup_steps", "steps of the linear rise", kSteps}};
}

HelpTexts option_help(const CosineAnnealingWithWarmupConfig*) {
  return {{"num_warmup_steps", "steps of the linear rise", kSteps, kRequired}};
}

HelpTexts option_help(const CosineDecayWithWarmupConfig*) {
  return {
      {"num_warmup_steps", "steps of the linear rise", kSteps, kRequired},
      {"num_decay_steps", "step at which decay_lr is reached", at_least(1), kRequired},
      {"peak_lr", "rate after the rise", above(0), kRequired},
      {"decay_lr", "rate at the end", at_least(0), kRequired},
  };
}

HelpTexts option_help(const DiffuserSchedulerConfig*) {
  return {
      {"num_warmup_steps", "steps of the linear rise", kSteps},
      {"name", "schedule",
       one_of({"linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
               "constant_with_warmup"})},
  };
}

HelpTexts option_help(const VqbetSchedulerConfig*) {
  return {
      {"num_warmup_steps", "steps of the linear rise", kSteps, kRequired},
      {"num_vqvae_training_steps", "steps at the full rate before it", kSteps, kRequired},
      {"num_cycles", "cosine waves after it"},
  };
}

HelpTexts option_help(const PolicyFeature*) {
  return {
      {"type", "kind of the feature"},
      {"shape", "sizes; cameras are [channels, height, width]", at_least(1)},
  };
}

HelpTexts option_help(const ImageTransformConfig*) {
  return {
      {"weight", "chance of being drawn, relative to the others", at_least(0)},
      {"type", "torchvision class"},
      {"kwargs", "arguments of the class"},
  };
}

HelpTexts option_help(const ImageTransformsConfig*) {
  return {
      {"enable", "augment camera images during training"},
      {"max_num_transforms", "transforms applied to a frame", at_least(1)},
      {"random_order", "apply them in random order"},
      {"tfs", "transforms {name: {weight, type, kwargs}}"},
  };
}

HelpTexts option_help(const DatasetConfig*) {
  return {
      {"repo_id", "name of the dataset, OWNER/NAME", {}, kRequired},
      {"repo_type", "kind of repository", one_of({"dataset", "bucket"})},
      {"root",
       "folder, http(s):// or hf:// address of the dataset; default: on this machine or the Hub by "
       "repo_id"},
      {"episodes", "train on these episodes only"},
      {"exclude_episodes", "leave these episodes out", {}, kNewer},
      {"image_transforms", "augmentation of camera images"},
      {"revision", "commit, branch or tag of the dataset"},
      {"use_imagenet_stats", "normalise cameras with ImageNet's statistics"},
      {"video_backend", "no effect: videos are decoded natively",
       one_of({"torchcodec", "pyav", "video_reader"})},
      {"return_uint8", "no effect: frames stay bytes until they are on the device"},
      {"depth_output_unit", "unit of depth images", one_of({"mm", "m"})},
      {"streaming",
       "read the dataset while training, from a folder, an http(s) or hf address, or the Hub"},
      {"eval_split", "share of episodes held out for eval_loss", half_open(0, 1)},
      {"streaming_episode_pool_size", "episodes mixed by each worker; default: 32 / workers",
       at_least(1), kNewer},
      {"streaming_sampling_strategy", "how frames of the pool are drawn",
       one_of({"remaining", "round_robin"}), kNewer},
      {"streaming_prefetch_episodes", "episodes fetched ahead of the pool", at_least(0), kNewer},
      {"streaming_byte_budget_gb", "compressed payload in memory per rank, GiB", above(0), kNewer},
      {"streaming_decode_threads", "decode threads per worker", at_least(1), kNewer},
      {"streaming_decoded_queue_size", "samples decoded ahead per worker", at_least(1), kNewer},
      {"video_decoder_cache_size",
       "most open video decoders; streaming: default as many as are of use", at_least(1), kNewer},
      {"streaming_native_http_connections", "HTTP connections; default: at least 8", at_least(1),
       kNewer},
      {"streaming_native_http_subranges", "parallel parts of one large range", at_least(1), kNewer},
      {"streaming_sidecar_lock_timeout_s",
       "seconds to wait for another process that indexes the videos", above(0), kNewer},
      {"streaming_order", "global: order independent of the topology", one_of({"worker", "global"}),
       kNewer},
  };
}

HelpTexts option_help(const ContextParallelConfig*) {
  return {
      {"ring_degree", "ring attention (not supported yet)", at_least(1)},
      {"ulysses_degree", "Ulysses attention (not supported yet)", at_least(1)},
  };
}

HelpTexts option_help(const ParallelismConfig*) {
  return {
      {"dp_replicate", "copies of the model; 1 without sharding: one a process", at_least(1)},
      {"dp_shard", "parts of the model; -1: over all processes", at_least(-1)},
      {"context_parallel", "division of the sequence"},
      {"cfg_parallel", "division of guidance (not supported yet)", at_least(1)},
  };
}

HelpTexts option_help(const GradientAccumulationConfig*) {
  return {{"steps", "micro-batches of one optimizer update", at_least(1)}};
}

HelpTexts option_help(const MixedPrecisionPolicyConfig*) {
  const Limits dtypes = one_of({"float32", "float16", "bfloat16"});
  return {
      {"param_dtype", "dtype of gathered parameters", dtypes},
      {"reduce_dtype", "dtype of reduced gradients", dtypes},
      {"output_dtype", "dtype of outputs", dtypes},
      {"cast_forward_inputs", "cast inputs of forward"},
  };
}

HelpTexts option_help(const FsdpConfig*) {
  return {
      {"reshard_after_forward", "free gathered parameters after forward"},
      {"wrap_modules", "class names of the units"},
      {"min_num_params", "or: units above this size", at_least(1)},
      {"cpu_offload", "keep shards on the CPU"},
      {"ignored_modules", "modules that stay whole (regular expression)"},
      {"mixed_precision_policy", "dtypes inside the units", {}, kNewer},
  };
}

HelpTexts option_help(const DdpConfig*) {
  return {
      {"find_unused_parameters", "look for parameters without a gradient in every step"},
      {"gradient_as_bucket_view", "gradients lie in the buckets that are sent"},
      {"static_graph", "the same parameters are used in every step"},
  };
}

HelpTexts option_help(const CompileConfig*) {
  return {
      {"enabled", "compile the model (not supported yet)"},
      {"backend", "compiler"},
      {"mode", "mode of the compiler"},
      {"regional", "compile repeated blocks once"},
  };
}

HelpTexts option_help(const ActivationCheckpointingConfig*) {
  return {{"mode", "recompute activations in backward (not supported yet)"}};
}

HelpTexts option_help(const GradScalerConfig*) {
  return {
      {"init_scale", "first scale of the loss (fp16 only)", above(0)},
      {"growth_factor", "growth of the scale", above(1)},
      {"backoff_factor", "cut of the scale after an overflow", {.above = 0, .below = 1}},
      {"growth_interval", "updates without overflow before it grows", at_least(1)},
  };
}

HelpTexts option_help(const AcceleratorConfig*) {
  return {
      {"mixed_precision", "autocast of the forward pass", one_of({"no", "fp16", "bf16"})},
      {"gradient_accumulation", "several micro-batches an update"},
      {"fsdp", "sharded training"},
      {"ddp", "replicated training"},
      {"compile", "compilation"},
      {"activation_checkpointing", "recomputation"},
      {"grad_scaler", "loss scaling of fp16", {}, kNewer},
  };
}

HelpTexts option_help(const EvalConfig*) {
  return {
      {"n_episodes", "no effect: simulators are not run here", at_least(1)},
      {"batch_size", "no effect: simulators are not run here", at_least(0)},
      {"use_async_envs", "no effect: simulators are not run here"},
      {"recording", "no effect: simulators are not run here"},
      {"recording_repo_id", "no effect: simulators are not run here"},
      {"recording_private", "no effect: simulators are not run here"},
  };
}

HelpTexts option_help(const EmaConfig*) {
  return {
      {"enable", "keep a moving average of the weights"},
      {"decay", "constant decay; default: grows with the updates", between(0, 1)},
      {"update_after_step", "first update that counts", at_least(0)},
      {"inv_gamma", "decay(t) = 1 - (1 + t / inv_gamma) ^ -power", above(0)},
      {"power", "see inv_gamma", above(0)},
      {"min_decay", "smallest decay", between(0, 1)},
      {"max_decay", "largest decay", between(0, 1)},
      {"use_for_eval", "evaluate the averaged weights"},
  };
}

HelpTexts option_help(const WandbConfig*) {
  return {
      {"enable", "not supported: use --trackio.enable"},
      {"disable_artifact", "no effect"},
      {"project", "no effect"},
      {"entity", "no effect"},
      {"notes", "no effect"},
      {"run_id", "no effect"},
      {"mode", "no effect"},
      {"add_tags", "no effect"},
  };
}

HelpTexts option_help(const TrackioConfig*) {
  return {
      {"enable", "track the run in trackio's database on this machine"},
      {"project", "project of the run"},
      {"name", "name of the run; default: the name of the output folder"},
      {"space_id", "not supported: `trackio sync` brings a project to a Space"},
  };
}

HelpTexts option_help(const PeftConfig*) {
  return {
      {"target_modules",
       "modules that get adapters: endings of names as a list, a regular expression for whole "
       "names, or all-linear; default: what the policy declares"},
      {"full_training_modules", "endings of names of modules trained whole beside the adapters"},
      {"method_type", "kind of adapter: LORA"},
      {"init_type", "first values of the adapters; null: as a new layer, and zeros",
       Limits{.choices = {kAdapterInits.begin(), kAdapterInits.end()}}},
      {"r", "rank of the adapters", at_least(1)},
      {"lora_alpha", "adapters are scaled by lora_alpha / r; null: 8", at_least(1)},
  };
}

HelpTexts option_help(const JobConfig*) {
  return {
      {"target", "local or null: remote jobs are not supported"},
      {"image", "no effect"},
      {"timeout", "no effect"},
      {"detach", "no effect"},
      {"tags", "no effect"},
  };
}

HelpTexts option_help(const ProfileConfig*) {
  return {{"steps", "A:B, trace steps A to B into OUTPUT_DIR/profile, for chrome://tracing"}};
}

HelpTexts option_help(const TrainConfig*) {
  return {
      {"dataset", "what to train on"},
      {"env", "not supported: simulators are not run here"},
      {"policy", "what to train"},
      {"reward_model", "not supported: policies only"},
      {"output_dir", "folder of the run; default: outputs/train/DATE/TIME_JOB_NAME"},
      {"job_name", "name of the run; default: the policy's type"},
      {"resume", "go on from the checkpoint that --config_path names"},
      {"seed", "weights, order and dropout; null: not seeded", between(0, 4294967295.0)},
      {"cudnn_deterministic", "deterministic convolutions on CUDA"},
      {"num_workers", "decode threads; 0: in the training thread", at_least(0)},
      {"batch_size", "samples of one step in one process", at_least(1)},
      {"prefetch_factor", "batches ready ahead, per worker", at_least(1)},
      {"persistent_workers", "no effect: there are no worker processes"},
      {"dataloader_multiprocessing_context", "no effect: no worker processes",
       one_of({"spawn", "fork", "forkserver"})},
      {"steps", "training steps (micro-batches)", at_least(1)},
      {"env_eval_freq", "no effect: simulators are not run here", at_least(0)},
      {"log_freq", "steps between log lines; 0: none", at_least(0)},
      {"eval_steps", "steps between eval_loss lines; 0: none", at_least(0)},
      {"max_eval_samples", "most samples of one eval_loss; 0: all", at_least(0)},
      {"tolerance_s", "largest error of a timestamp, seconds", above(0)},
      {"save_checkpoint", "write checkpoints"},
      {"save_freq", "steps between checkpoints; 0 or less: only at the end", {}},
      {"checkpoint_format", "form of the weights",
       one_of({"safetensors", "dcp", "safetensors_dcp"}), kNewer},
      {"use_policy_training_preset", "optimizer and scheduler come from the policy"},
      {"optimizer", "optimizer; given values win over the policy's preset"},
      {"scheduler", "learning rate over time; given values win over the preset"},
      {"parallelism", "division over processes", {}, kNewer},
      {"accelerator", "precision and accumulation", {}, kNewer},
      {"eval", "evaluation in a simulator"},
      {"ema", "moving average of the weights", {}, kNewer},
      {"wandb", "Weights & Biases"},
      {"trackio", "trackio, on this machine", {}, kNewer},
      {"peft", "adapters on a frozen policy"},
      {"job", "remote jobs"},
      {"save_checkpoint_to_hub", "publish every checkpoint to policy.repo_id as it is written"},
      {"sample_weighting", "not supported"},
      {"rename_map", "new names of dataset features, for a pretrained policy"},
      {"checkpoint_path", "the checkpoint that a run was resumed from", {}, kRecorded},
      {"max_num_shards", "episodes fetched at once (not supported yet)", at_least(1), kNewer},
      {"log_samples", "write samples.rankR.jsonl: step, index, loss, grad_norm", {}, kUnrecorded},
      {"data_only", "run the data path alone and report its speed", {}, kUnrecorded},
      {"profile", "trace of what the threads of all ranks do", {}, kUnrecorded},
  };
}

}  // namespace lerobot::config
