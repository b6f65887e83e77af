// The one configuration tree of lerobot-train, in LeRobot's names, order and defaults
// (train_config.json of LeRobot 0.6). The command line, files and --help derive from these structs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/describe/class.hpp>

#include "lerobot/base/json.h"
#include "lerobot/config/optim_config.h"
#include "lerobot/config/policy_config.h"

namespace lerobot::config {

/// One image transform: `type` is ColorJitter, SharpnessJitter, RandomAffine or Identity; `kwargs`
/// are torchvision's (a two-number range each).
struct ImageTransformConfig {
  double weight = 1.0;
  std::string type = "Identity";
  Json kwargs = Json::object();
};
BOOST_DESCRIBE_STRUCT(ImageTransformConfig, (), (weight, type, kwargs))

struct ImageTransformsConfig {
  bool enable = false;
  std::int64_t max_num_transforms = 3;
  bool random_order = false;
  /// Named transforms in the order of the file.
  std::vector<std::pair<std::string, ImageTransformConfig>> tfs = default_transforms();
  static std::vector<std::pair<std::string, ImageTransformConfig>> default_transforms();
};
BOOST_DESCRIBE_STRUCT(ImageTransformsConfig, (), (enable, max_num_transforms, random_order, tfs))

struct DatasetConfig {
  std::string repo_id;
  std::string repo_type = "dataset";
  std::optional<std::string> root;
  std::optional<std::vector<std::int64_t>> episodes;
  std::optional<std::vector<std::int64_t>> exclude_episodes;
  ImageTransformsConfig image_transforms;
  std::optional<std::string> revision;
  bool use_imagenet_stats = true;
  std::string video_backend = "torchcodec";
  bool return_uint8 = false;
  std::string depth_output_unit = "mm";
  bool streaming = false;
  double eval_split = 0.0;
  // Newer than LeRobot 0.6.1: written to files only when they differ from their defaults.
  std::optional<std::int64_t> streaming_episode_pool_size;
  std::string streaming_sampling_strategy = "remaining";
  std::int64_t streaming_prefetch_episodes = 8;
  double streaming_byte_budget_gb = 8.0;
  std::int64_t streaming_decode_threads = 2;
  std::int64_t streaming_decoded_queue_size = 8;
  std::optional<std::int64_t> video_decoder_cache_size;
  std::optional<std::int64_t> streaming_native_http_connections;
  std::int64_t streaming_native_http_subranges = 1;
  double streaming_sidecar_lock_timeout_s = 1800.0;
  std::string streaming_order = "worker";  // ours: "worker" or "global"
};
BOOST_DESCRIBE_STRUCT(DatasetConfig, (),
                      (repo_id, repo_type, root, episodes, exclude_episodes, image_transforms,
                       revision, use_imagenet_stats, video_backend, return_uint8, depth_output_unit,
                       streaming, eval_split, streaming_episode_pool_size,
                       streaming_sampling_strategy, streaming_prefetch_episodes,
                       streaming_byte_budget_gb, streaming_decode_threads,
                       streaming_decoded_queue_size, video_decoder_cache_size,
                       streaming_native_http_connections, streaming_native_http_subranges,
                       streaming_sidecar_lock_timeout_s, streaming_order))

struct ContextParallelConfig {
  std::int64_t ring_degree = 1;
  std::int64_t ulysses_degree = 1;
};
BOOST_DESCRIBE_STRUCT(ContextParallelConfig, (), (ring_degree, ulysses_degree))

struct ParallelismConfig {
  std::int64_t dp_replicate = 1;
  std::int64_t dp_shard = 1;
  ContextParallelConfig context_parallel;
  std::int64_t cfg_parallel = 1;
};
BOOST_DESCRIBE_STRUCT(ParallelismConfig, (),
                      (dp_replicate, dp_shard, context_parallel, cfg_parallel))

struct GradientAccumulationConfig {
  std::int64_t steps = 1;
};
BOOST_DESCRIBE_STRUCT(GradientAccumulationConfig, (), (steps))

/// Fields of torch's MixedPrecisionPolicy. One set field replaces the derived policy as a whole.
struct MixedPrecisionPolicyConfig {
  std::optional<std::string> param_dtype;
  std::optional<std::string> reduce_dtype;
  std::optional<std::string> output_dtype;
  std::optional<bool> cast_forward_inputs;
};
BOOST_DESCRIBE_STRUCT(MixedPrecisionPolicyConfig, (),
                      (param_dtype, reduce_dtype, output_dtype, cast_forward_inputs))

struct FsdpConfig {
  bool reshard_after_forward = true;
  std::optional<std::vector<std::string>> wrap_modules;
  std::optional<std::int64_t> min_num_params;
  bool cpu_offload = false;
  std::optional<std::string> ignored_modules;
  MixedPrecisionPolicyConfig mixed_precision_policy;  // newer than 0.6.1
};
BOOST_DESCRIBE_STRUCT(FsdpConfig, (),
                      (reshard_after_forward, wrap_modules, min_num_params, cpu_offload,
                       ignored_modules, mixed_precision_policy))

struct DdpConfig {
  bool find_unused_parameters = true;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
};
BOOST_DESCRIBE_STRUCT(DdpConfig, (),
                      (find_unused_parameters, gradient_as_bucket_view, static_graph))

struct CompileConfig {
  bool enabled = false;
  std::string backend = "inductor";
  std::optional<std::string> mode;
  bool regional = true;
};
BOOST_DESCRIBE_STRUCT(CompileConfig, (), (enabled, backend, mode, regional))

struct ActivationCheckpointingConfig {
  std::string mode = "none";
};
BOOST_DESCRIBE_STRUCT(ActivationCheckpointingConfig, (), (mode))

struct GradScalerConfig {
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
};
BOOST_DESCRIBE_STRUCT(GradScalerConfig, (),
                      (init_scale, growth_factor, backoff_factor, growth_interval))

struct AcceleratorConfig {
  std::string mixed_precision = "no";
  GradientAccumulationConfig gradient_accumulation;
  FsdpConfig fsdp;
  DdpConfig ddp;
  CompileConfig compile;
  ActivationCheckpointingConfig activation_checkpointing;
  GradScalerConfig grad_scaler;  // newer than 0.6.1
};
BOOST_DESCRIBE_STRUCT(AcceleratorConfig, (),
                      (mixed_precision, gradient_accumulation, fsdp, ddp, compile,
                       activation_checkpointing, grad_scaler))

/// Simulator evaluation: kept in files, never run here.
struct EvalConfig {
  std::int64_t n_episodes = 50;
  std::int64_t batch_size = 0;
  bool use_async_envs = true;
  bool recording = false;
  std::optional<std::string> recording_repo_id;
  bool recording_private = false;
};
BOOST_DESCRIBE_STRUCT(EvalConfig, (),
                      (n_episodes, batch_size, use_async_envs, recording, recording_repo_id,
                       recording_private))

struct EmaConfig {
  bool enable = false;
  std::optional<double> decay;
  std::int64_t update_after_step = 0;
  double inv_gamma = 1.0;
  double power = 0.75;
  double min_decay = 0.0;
  double max_decay = 0.9999;
  bool use_for_eval = true;
};
BOOST_DESCRIBE_STRUCT(EmaConfig, (),
                      (enable, decay, update_after_step, inv_gamma, power, min_decay, max_decay,
                       use_for_eval))

struct WandbConfig {
  bool enable = false;
  bool disable_artifact = false;
  std::string project = "lerobot";
  std::optional<std::string> entity;
  std::optional<std::string> notes;
  std::optional<std::string> run_id;
  std::optional<std::string> mode;
  bool add_tags = true;
};
BOOST_DESCRIBE_STRUCT(WandbConfig, (),
                      (enable, disable_artifact, project, entity, notes, run_id, mode, add_tags))

struct TrackioConfig {  // newer than 0.6.1
  bool enable = false;
  std::string project = "lerobot";
  std::optional<std::string> name;
  std::optional<std::string> space_id;
};
BOOST_DESCRIBE_STRUCT(TrackioConfig, (), (enable, project, name, space_id))

/// Values that --peft.init_type may have besides null, with peft's names.
inline constexpr std::array<std::string_view, 4> kAdapterInits = {"gaussian", "orthogonal", "olora",
                                                                  "pissa"};

struct PeftConfig {
  std::optional<Json> target_modules;  // a list of suffixes, a regular expression or "all-linear"
  std::optional<std::vector<std::string>> full_training_modules;
  std::string method_type = "LORA";
  std::optional<std::string> init_type;
  std::int64_t r = 16;
  std::optional<std::int64_t> lora_alpha;
};
BOOST_DESCRIBE_STRUCT(PeftConfig, (),
                      (target_modules, full_training_modules, method_type, init_type, r,
                       lora_alpha))

/// What --peft.* names, otherwise what the policy declares; `modules` is null when neither does.
AdapterTargets adapter_targets(const PeftConfig& options, const PolicyConfig& policy);

struct JobConfig {
  std::optional<std::string> target;
  std::string image = "huggingface/lerobot-gpu:latest";
  std::optional<std::string> timeout = "2d";
  bool detach = false;
  std::vector<std::string> tags;
};
BOOST_DESCRIBE_STRUCT(JobConfig, (), (target, image, timeout, detach, tags))

/// A trace of some steps; see docs/watching.md.
struct ProfileConfig {
  std::optional<std::string> steps;  // "A:B", parse_step_range()
};
BOOST_DESCRIBE_STRUCT(ProfileConfig, (), (steps))

struct TrainConfig {
  DatasetConfig dataset;
  Json env;  // null; anything else is refused
  std::shared_ptr<PolicyConfig> policy;
  Json reward_model;  // null; anything else is refused
  std::optional<std::string> output_dir;
  std::optional<std::string> job_name;
  bool resume = false;
  std::optional<std::int64_t> seed = 1000;
  bool cudnn_deterministic = false;
  std::int64_t num_workers = 4;
  std::int64_t batch_size = 8;
  std::int64_t prefetch_factor = 4;
  bool persistent_workers = true;
  std::optional<std::string> dataloader_multiprocessing_context = "spawn";
  std::int64_t steps = 100000;
  std::int64_t env_eval_freq = 20000;
  std::int64_t log_freq = 200;
  std::int64_t eval_steps = 0;
  std::int64_t max_eval_samples = 0;
  double tolerance_s = 1e-4;
  bool save_checkpoint = true;
  std::int64_t save_freq = 20000;
  std::string checkpoint_format = "safetensors";
  bool use_policy_training_preset = true;
  std::optional<OptimizerConfig> optimizer;
  std::optional<SchedulerConfig> scheduler;
  ParallelismConfig parallelism;
  AcceleratorConfig accelerator;
  EvalConfig eval;
  EmaConfig ema;
  WandbConfig wandb;
  TrackioConfig trackio;  // newer than 0.6.1
  std::optional<PeftConfig> peft;
  JobConfig job;
  bool save_checkpoint_to_hub = false;
  Json sample_weighting;  // null; anything else is refused
  std::map<std::string, std::string> rename_map;
  std::optional<std::string> checkpoint_path;
  // Ours; written to files only when they differ from their defaults.
  std::optional<std::int64_t> max_num_shards;
  bool log_samples = false;
  bool data_only = false;
  ProfileConfig profile;
};
BOOST_DESCRIBE_STRUCT(TrainConfig, (),
                      (dataset, env, policy, reward_model, output_dir, job_name, resume, seed,
                       cudnn_deterministic, num_workers, batch_size, prefetch_factor,
                       persistent_workers, dataloader_multiprocessing_context, steps, env_eval_freq,
                       log_freq, eval_steps, max_eval_samples, tolerance_s, save_checkpoint,
                       save_freq, checkpoint_format, use_policy_training_preset, optimizer,
                       scheduler, parallelism, accelerator, eval, ema, wandb, trackio, peft, job,
                       save_checkpoint_to_hub, sample_weighting, rename_map, checkpoint_path,
                       max_num_shards, log_samples, data_only, profile))

}  // namespace lerobot::config
