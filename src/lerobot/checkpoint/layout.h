// What a checkpoint holds, and which one is whole. (config/run_folder.h: where they lie, and which
// one a path means.)
//
//   000040/
//     pretrained_model/      what a user needs to run the policy
//     training_state/        what a resume needs besides
//     pretrained_model_ema/  only with an exponential moving average
//
// A folder under a step's name is a checkpoint or nothing: CheckpointWriter renames it there when
// it is complete. LeRobot itself writes in place, so folders are checked before they are trusted.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lerobot::checkpoint {

namespace fs = std::filesystem;

inline constexpr const char* kPretrainedModelEmaFolder = "pretrained_model_ema";

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kAdapterModelFile = "adapter_model.safetensors";
inline constexpr const char* kTrainingStepFile = "training_step.json";
inline constexpr const char* kRngStateFile = "rng_state.safetensors";
inline constexpr const char* kOptimizerStateFile = "optimizer_state.safetensors";
inline constexpr const char* kOptimizerParamGroupsFile = "optimizer_param_groups.json";
inline constexpr const char* kSchedulerStateFile = "scheduler_state.json";
inline constexpr const char* kEmaStateFile = "ema_state.pt";
/// Sharded weights and sharded optimizer state (torch.distributed.checkpoint).
inline constexpr const char* kShardedModelFolder = "pytorch_model_fsdp_0";
inline constexpr const char* kShardedOptimizerFolder = "optimizer_0";

/// The first thing that a checkpoint lacks ("training_state/rng_state.safetensors"), or nothing
/// when it is complete. Files of tensors count only when their header and length agree, so that a
/// save cut off by a kill is seen.
std::optional<std::string> missing_part(const fs::path& checkpoint);

/// The checkpoint that `checkpoints`/last names, or nothing when there is no `last`, it dangles, or
/// what it names is incomplete. A real directory named `last` is no pointer.
std::optional<fs::path> read_last(const fs::path& checkpoints);

/// Makes `checkpoints`/last name `folder` (a bare name such as "000040"), replacing a link or text
/// file as a unit. Where the file system has no symbolic links, `last` becomes a text file holding
/// the name. A real directory named `last` is never touched: this logs a warning and returns false.
/// Throws Error when the folder can't be written.
bool point_last_at(const fs::path& checkpoints, const std::string& folder);

/// What read_last() gives, otherwise the complete checkpoint with the highest step; nothing when
/// there is none.
std::optional<fs::path> latest_checkpoint(const fs::path& checkpoints);

/// Throws Error naming what `checkpoint` lacks and the newest complete checkpoint beside it;
/// returns when it is complete.
void require_complete(const fs::path& checkpoint);

}  // namespace lerobot::checkpoint
