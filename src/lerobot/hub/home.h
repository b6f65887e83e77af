// The folders of the Hugging Face tools on this machine.
#pragma once

#include <filesystem>
#include <string>

namespace lerobot::hub {

/// `text` with a leading ~ or ~NAME replaced by that user's home folder, as Python's
/// os.path.expanduser does; unchanged when there is no such user.
std::filesystem::path expand_user(const std::string& text);

/// HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface; ~ and $VARIABLE expanded.
/// An empty variable counts as unset.
std::filesystem::path hf_home();

/// HF_LEROBOT_HOME (~ expanded), else hf_home()/lerobot: where LeRobot keeps datasets and caches.
std::filesystem::path lerobot_home();

}  // namespace lerobot::hub
