// What --config_path may name.
#pragma once

#include <filesystem>

namespace lerobot::config {

/// The configuration file that `path` means: the file itself, its folder, a checkpoint (000004/),
/// its `last`, or the run's output or checkpoints folder, whose `last` is taken. `last` may be a
/// link or, where links are barred, a file that holds the step's name; it is replaced by the step's
/// folder, so that later checkpoints don't move what was chosen. Throws Error that says what to
/// pass instead.
std::filesystem::path find_train_config(const std::filesystem::path& path);

/// Replaces every component `last` of `path` that is a link or a text file by the folder it names.
std::filesystem::path resolve_last(const std::filesystem::path& path);

/// The folder with config.json that --policy.path=`path` means: the folder itself, or
/// pretrained_model in a checkpoint, `last` resolved. Throws Error that says what is missing.
std::filesystem::path find_pretrained(const std::filesystem::path& path);

}  // namespace lerobot::config
