#include "lerobot/config/run_folder.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <system_error>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::config {
namespace {

constexpr std::size_t kMinDigits = 6;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// The folder with `file` that `folder` means; nothing when there is none.
std::optional<fs::path> folder_with(const char* file, const fs::path& folder) {
  for (const fs::path& candidate :
       {folder, folder / kPretrainedModelFolder,
        resolve_last(folder / kLastName) / kPretrainedModelFolder,
        resolve_last(folder / kCheckpointsFolder / kLastName) / kPretrainedModelFolder})
    if (is_file(candidate / file)) return candidate;
  return std::nullopt;
}

/// Proposes the newest step when `folder` is that of a run or of checkpoints without a `last`.
void refuse_unusable_last(const fs::path& path, const fs::path& folder) {
  for (const fs::path& checkpoints : {folder, folder / kCheckpointsFolder})
    if (const auto steps = step_folders(checkpoints); !steps.empty())
      fail("{}: there is no usable `last` in {}; pass the checkpoint itself, for instance {}",
           path.string(), checkpoints.string(), steps.front().string());
}

void refuse_dangling_last(const fs::path& path, const fs::path& resolved) {
  if (resolved != path)
    fail("{}: last names {}, which does not exist", path.string(), resolved.string());
}

}  // namespace

std::string step_folder_name(std::int64_t step, std::int64_t total_steps) {
  const std::size_t digits = std::max(kMinDigits, std::to_string(total_steps).size());
  return fmt::format("{:0{}}", step, digits);
}

std::optional<std::int64_t> parse_step_folder_name(std::string_view name) {
  if (name.size() < kMinDigits ||
      !std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{}) return std::nullopt;
  return step;
}

bool may_be_on_hub(const std::string& path) {
  std::error_code error;
  return !path.empty() && !fs::exists(path, error) && path.front() != '.' && path.front() != '/' &&
         path.front() != '~' && std::count(path.begin(), path.end(), '/') == 1 &&
         path.back() != '/' && !path.ends_with(".json") && !path.ends_with(".yaml") &&
         !path.ends_with(".yml");
}

std::vector<fs::path> step_folders(const fs::path& checkpoints) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto step = parse_step_folder_name(entry->path().filename().string());
    if (step && is_folder(entry->path())) found.emplace_back(*step, entry->path());
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<fs::path> folders;
  folders.reserve(found.size());
  for (auto& [step, path] : found) folders.push_back(std::move(path));
  return folders;
}

std::optional<fs::path> named_by_last(const fs::path& last) {
  std::error_code error;
  const auto type = fs::symlink_status(last, error).type();
  if (type == fs::file_type::symlink) {
    const fs::path target = fs::read_symlink(last, error);
    if (error) return std::nullopt;
    return (last.parent_path() / target).lexically_normal();
  }
  if (type != fs::file_type::regular) return std::nullopt;
  constexpr std::uintmax_t kLongestName = 64;
  if (const auto size = fs::file_size(last, error); error || size > kLongestName)
    return std::nullopt;
  std::string name = read_text_file(last);
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' '))
    name.pop_back();
  if (!parse_step_folder_name(name)) return std::nullopt;
  return last.parent_path() / name;
}

fs::path resolve_last(const fs::path& path) {
  fs::path resolved;
  for (const fs::path& part : path) {
    resolved /= part;
    if (part != kLastName) continue;
    if (auto named = named_by_last(resolved)) resolved = std::move(*named);
  }
  return resolved;
}

fs::path find_train_config(const fs::path& path) {
  fs::path resolved = resolve_last(path);
  if (is_file(resolved)) return resolved;
  if (!is_folder(resolved)) {
    refuse_dangling_last(path, resolved);
    fail(
        "{}: no such file or folder; pass a train_config.json, a checkpoint or the run's output "
        "folder",
        path.string());
  }
  if (const auto folder = folder_with(kTrainConfigFile, resolved))
    return *folder / kTrainConfigFile;
  refuse_unusable_last(path, resolved);
  fail(
      "{}: no train_config.json in this folder, in its pretrained_model, or in its last "
      "checkpoint",
      path.string());
}

fs::path find_pretrained(const fs::path& path) {
  const fs::path resolved = resolve_last(path);
  if (is_file(resolved))
    fail("{}: is a file; pass the folder that holds config.json", path.string());
  if (!is_folder(resolved)) {
    refuse_dangling_last(path, resolved);
    fail("{}: no such folder", path.string());
  }
  if (auto folder = folder_with(kPolicyConfigFile, resolved)) return std::move(*folder);
  refuse_unusable_last(path, resolved);
  fail("{}: no config.json in this folder, in its pretrained_model, or in its last checkpoint",
       path.string());
}

}  // namespace lerobot::config
