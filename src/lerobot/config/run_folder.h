// The folder of a run: where its checkpoints lie, and which one a path means.
//
//   <output_dir>/checkpoints/
//     000040/                  step, zero-padded to at least six digits
//       pretrained_model/      what a user needs to run the policy
//       training_state/        what a resume needs besides
//     last -> 000040           relative link; a text file with the name where links are barred
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lerobot::config {

inline constexpr const char* kCheckpointsFolder = "checkpoints";
inline constexpr const char* kPretrainedModelFolder = "pretrained_model";
inline constexpr const char* kTrainingStateFolder = "training_state";
inline constexpr const char* kLastName = "last";
inline constexpr const char* kTrainConfigFile = "train_config.json";
inline constexpr const char* kPolicyConfigFile = "config.json";
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// "000040": `step` with as many digits as `total_steps` has, at least six.
std::string step_folder_name(std::int64_t step, std::int64_t total_steps);

/// The step that a folder name of at least six digits stands for; nothing for any other name.
std::optional<std::int64_t> parse_step_folder_name(std::string_view name);

/// True for a path that is nothing on this machine and has the form of a repository's name,
/// OWNER/NAME.
bool may_be_on_hub(const std::string& path);

/// The folders of steps in `checkpoints`, the highest step first; complete or not.
std::vector<std::filesystem::path> step_folders(const std::filesystem::path& checkpoints);

/// The folder that `last` names, whether it is a link or a text file that holds a step's name; it
/// need not exist. Nothing when `last` is neither, such as a real folder.
std::optional<std::filesystem::path> named_by_last(const std::filesystem::path& last);

/// Replaces every component `last` of `path` by the folder it names, so that later checkpoints
/// don't move what was chosen.
std::filesystem::path resolve_last(const std::filesystem::path& path);

/// The train_config.json that --config_path=`path` means: the file itself, its folder, a checkpoint
/// (000004/), its `last`, or the run's output or checkpoints folder, whose `last` is taken. `last`
/// is resolved. Throws Error that says what to pass instead.
std::filesystem::path find_train_config(const std::filesystem::path& path);

/// The folder with config.json that --policy.path=`path` means: the folder itself or any of the
/// folders above. Throws Error that says what is missing.
std::filesystem::path find_pretrained(const std::filesystem::path& path);

}  // namespace lerobot::config
