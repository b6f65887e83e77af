#include "lerobot/config/config_path.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::config {
namespace {

constexpr const char* kTrainConfig = "train_config.json";
constexpr const char* kPolicyConfig = "config.json";
constexpr const char* kPretrained = "pretrained_model";
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kLast = "last";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}
bool is_link(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(path, error);
}

/// The name in a `last` that is a plain file; empty when it holds something else.
std::string step_name(const fs::path& file) {
  std::error_code error;
  if (fs::file_size(file, error) > 64 || error) return "";
  std::string name = read_text_file(file);
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' '))
    name.pop_back();
  const bool digits = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
  return digits ? name : "";
}

/// The newest folder of a step in `folder`; empty when there is none.
std::string newest_step(const fs::path& folder) {
  std::string newest;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos || !is_folder(entry->path())) continue;
    if (name.size() > newest.size() || (name.size() == newest.size() && name > newest))
      newest = name;
  }
  return newest;
}

/// What an owner/name on the Hub looks like.
bool looks_like_repository(const std::string& text) {
  return std::count(text.begin(), text.end(), '/') == 1 && text.front() != '.' &&
         text.front() != '/' && text.back() != '/' && !text.ends_with(".json") &&
         !text.ends_with(".yaml") && !text.ends_with(".yml");
}

}  // namespace

fs::path resolve_last(const fs::path& path) {
  fs::path resolved;
  for (const fs::path& part : path) {
    const fs::path next = resolved / part;
    resolved = next;
    if (part != kLast) continue;
    if (is_link(next)) {
      std::error_code error;
      const fs::path target = fs::read_symlink(next, error);
      if (!error) resolved = target.is_absolute() ? target : next.parent_path() / target;
    } else if (is_file(next)) {
      if (const std::string step = step_name(next); !step.empty())
        resolved = next.parent_path() / step;
    }
  }
  return resolved;
}

fs::path find_train_config(const fs::path& path) {
  const fs::path resolved = resolve_last(path);
  if (is_file(resolved)) return resolved;
  if (!is_folder(resolved)) {
    if (resolved != path)
      fail("{}: last names {}, which does not exist", path.string(), resolved.string());
    if (looks_like_repository(path.string()))
      fail("{}: no such file or folder; configurations on the Hub are not supported yet",
           path.string());
    fail(
        "{}: no such file or folder; pass a train_config.json, a checkpoint or the run's output "
        "folder",
        path.string());
  }
  for (const fs::path& folder :
       {resolved, resolved / kPretrained, resolve_last(resolved / kLast) / kPretrained,
        resolve_last(resolved / kCheckpoints / kLast) / kPretrained})
    if (is_file(folder / kTrainConfig)) return folder / kTrainConfig;
  for (const fs::path& folder : {resolved, resolved / kCheckpoints})
    if (const std::string step = newest_step(folder); !step.empty())
      fail("{}: there is no usable `last` in {}; pass the checkpoint itself, for instance {}",
           path.string(), folder.string(), (folder / step).string());
  fail(
      "{}: no train_config.json in this folder, in its pretrained_model, or in its last "
      "checkpoint",
      path.string());
}

fs::path find_pretrained(const fs::path& path) {
  const fs::path resolved = resolve_last(path);
  for (const fs::path& folder : {resolved, resolved / kPretrained})
    if (is_file(folder / kPolicyConfig)) return folder;
  if (is_folder(resolved)) fail("{}: no config.json in this folder", path.string());
  if (is_file(resolved))
    fail("{}: is a file; pass the folder that holds config.json", path.string());
  if (resolved == path && looks_like_repository(path.string()))
    fail("{}: no such folder; policies on the Hub are not supported yet, download it first",
         path.string());
  fail("{}: no such folder", path.string());
}

}  // namespace lerobot::config
