#include "lerobot/train/layout.h"

#include <algorithm>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/validate.h"

namespace lerobot::train {
namespace {

constexpr const char* kDegrees = "parallelism";

bool gives_degrees(const std::set<std::string>& given) {
  return std::any_of(given.begin(), given.end(),
                     [](const std::string& name) { return name.starts_with(kDegrees); });
}

/// As soon as one degree is given, the recorded ones have no say.
void use_given_degrees(config::ParallelismConfig& degrees, const std::set<std::string>& given) {
  if (given.contains(kDegrees)) return;
  if (!given.contains("parallelism.dp_replicate")) degrees.dp_replicate = 1;
  if (!given.contains("parallelism.dp_shard")) degrees.dp_shard = 1;
}

void fit_recorded_degrees(config::ParallelismConfig& degrees, std::int64_t world_size) {
  if (degrees.dp_replicate * degrees.dp_shard == world_size) return;
  const config::ParallelismConfig recorded = degrees;
  const bool has_replicas = recorded.dp_replicate > 1;
  if (recorded.dp_shard == 1 || recorded.dp_shard == -1) {
    degrees.dp_replicate = 1;
  } else if (has_replicas && world_size % recorded.dp_shard == 0) {
    degrees.dp_replicate = world_size / recorded.dp_shard;
  } else {
    degrees.dp_replicate = 1;
    degrees.dp_shard = -1;
  }
  log::info(
      "The checkpoint was written with dp_replicate={}, dp_shard={}; this run has {} process{} and "
      "divides the model anew",
      recorded.dp_replicate, recorded.dp_shard, world_size, world_size == 1 ? "" : "es");
}

void keep_format_of_whole_weights(config::TrainConfig& config, const std::set<std::string>& given) {
  if (config.parallelism.dp_shard != 1 || config.checkpoint_format == "safetensors") return;
  if (given.contains("checkpoint_format"))
    fail_usage("--checkpoint_format={}{}", config.checkpoint_format, config::kFormatNeedsShards);
  log::warning(
      "The checkpoint's run was sharded, this one is not: it writes checkpoint_format=safetensors "
      "instead of {}",
      config.checkpoint_format);
  config.checkpoint_format = "safetensors";
}

/// An option that was written and changes nothing is a misunderstanding worth a line.
void warn_about_idle_options(const config::TrainConfig& config, const std::set<std::string>& given,
                             const distributed::Mesh& mesh) {
  const auto warn = [&](const char* group, const std::string& why) {
    for (const std::string& name : given)
      if (name.starts_with(group)) log::warning("--{} has no effect: {}", name, why);
  };
  if (!mesh.is_sharded())
    warn("accelerator.fsdp.", "the model is not sharded (--parallelism.dp_shard)");
  if (mesh.is_sharded())
    warn("accelerator.ddp.", "the model is sharded (--parallelism.dp_shard)");
  else if (mesh.world_size() == 1)
    warn("accelerator.ddp.", "there is one process");
  if (config.accelerator.mixed_precision != "fp16")
    warn("accelerator.grad_scaler.", fmt::format("--accelerator.mixed_precision={} scales no loss",
                                                 config.accelerator.mixed_precision));
}

}  // namespace

distributed::Mesh resolve_layout(config::TrainConfig& config, const std::set<std::string>& given,
                                 std::int64_t rank, std::int64_t world_size) {
  if (config.resume && gives_degrees(given))
    use_given_degrees(config.parallelism, given);
  else if (config.resume)
    fit_recorded_degrees(config.parallelism, world_size);
  const distributed::Mesh mesh = distributed::resolve_mesh(config.parallelism, rank, world_size);
  if (config.resume) keep_format_of_whole_weights(config, given);
  // What -1 stands for is known only now.
  if (const auto problems = config::validate(config); !problems.empty())
    throw UsageError(fmt::format("{}", fmt::join(problems, "\n")));
  if (rank == 0) warn_about_idle_options(config, given, mesh);
  return mesh;
}

}  // namespace lerobot::train
