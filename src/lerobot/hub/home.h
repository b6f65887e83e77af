// The folders of the Hugging Face tools on this machine.
#pragma once

#include <filesystem>
#include <string>

namespace lerobot::hub {

/// `text` with a leading ~ or ~NAME replaced by that user's home folder, as Python's
/// os.path.expanduser does; unchanged when there is no such user.
std::filesystem::path expand_user(const std::string& text);

/// The same with $NAME and ${NAME} replaced, too; unknown ones stay as they are.
std::filesystem::path expand_path(const std::string& text);

/// True for a variable that says 1, ON, YES or TRUE in any case.
bool is_set(const char* variable);

/// True when HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE asks for no network.
bool offline_requested();

/// HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface; ~ and $VARIABLE expanded.
/// An empty variable counts as unset.
std::filesystem::path hf_home();

/// HF_LEROBOT_HOME (~ expanded), else hf_home()/lerobot: where LeRobot keeps datasets and caches.
std::filesystem::path lerobot_home();

}  // namespace lerobot::hub
