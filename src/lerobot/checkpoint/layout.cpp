#include "lerobot/checkpoint/layout.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <unistd.h>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/base/log.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {
namespace {

constexpr std::size_t kMinDigits = 6;
constexpr const char* kNewLastName = ".last.tmp";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// A folder itself, not a link to one.
bool is_real_folder(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::directory;
}

bool is_link(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(path, error);
}

/// A safetensors file whose header and length agree.
bool is_whole_tensor_file(const fs::path& path) {
  if (!is_there(path)) return false;
  try {
    serialization::SafetensorsFile{path};
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_whole_json_file(const fs::path& path) {
  if (!is_there(path)) return false;
  try {
    read_json_file(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// What `checkpoints`/last names, not checked further.
std::optional<fs::path> last_target(const fs::path& checkpoints) {
  const fs::path last = checkpoints / kLastName;
  std::error_code error;
  const auto type = fs::symlink_status(last, error).type();
  if (type == fs::file_type::symlink) {
    const fs::path target = fs::read_symlink(last, error);
    if (error) return std::nullopt;
    return (checkpoints / target).lexically_normal();
  }
  if (type != fs::file_type::regular) return std::nullopt;
  constexpr std::uintmax_t kLongestName = 64;
  if (const auto size = fs::file_size(last, error); error || size > kLongestName)
    return std::nullopt;
  std::string name = read_text_file(last);
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) name.pop_back();
  if (!parse_step_folder_name(name)) return std::nullopt;
  return checkpoints / name;
}

/// Step folders, the highest step first.
std::vector<fs::path> step_folders(const fs::path& checkpoints) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const auto step = parse_step_folder_name(entry.path().filename().string());
    if (step && is_folder(entry.path())) found.emplace_back(*step, entry.path());
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<fs::path> folders;
  for (auto& [step, path] : found) folders.push_back(std::move(path));
  return folders;
}

/// "; try <path>" when there is a complete checkpoint in `checkpoints`.
std::string suggestion(const fs::path& checkpoints) {
  const auto latest = latest_checkpoint(checkpoints);
  return latest ? fmt::format("; the newest complete checkpoint there is {}", latest->string())
                : std::string();
}

/// The folder that `path` lies in, also for "." and a bare name.
fs::path parent_of(const fs::path& path) {
  if (path.has_parent_path() && path.filename() != "..") return path.parent_path();
  const fs::path absolute = fs::absolute(path).lexically_normal();
  return (absolute.has_filename() ? absolute : absolute.parent_path()).parent_path();
}

/// `given` without a trailing slash, and with a final link followed one step. Throws Error when it
/// does not exist.
fs::path plain_path(const fs::path& given) {
  fs::path path = given.lexically_normal();
  if (!path.has_filename() && path.has_relative_path()) path = path.parent_path();
  if (is_link(path)) {
    std::error_code error;
    const fs::path target = fs::read_symlink(path, error);
    if (!is_there(path))
      fail("{}: is a link to {}, which does not exist{}", path.string(), target.string(),
           suggestion(parent_of(path)));
    path = (parent_of(path) / target).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
  }
  if (!is_there(path)) fail("{}: does not exist", path.string());
  return path;
}

bool looks_like_checkpoint(const fs::path& path) {
  return is_folder(path / kPretrainedModelFolder);
}

/// The checkpoint that `path` (an existing file or folder) belongs to or holds; nothing when there
/// is no such relation.
std::optional<fs::path> find_checkpoint(const fs::path& path) {
  if (!is_folder(path)) {
    const fs::path folder = parent_of(path);
    if (path.filename() != kLastName) return find_checkpoint(folder);
    const auto target = last_target(folder);
    if (!target || !is_there(*target))
      fail("{}: names no checkpoint beside it{}", path.string(), suggestion(folder));
    return target;
  }
  if (looks_like_checkpoint(path)) return path;
  if (is_there(path / kPolicyConfigFile) || is_there(path / kTrainConfigFile)) {
    const fs::path parent = parent_of(path);
    if (looks_like_checkpoint(parent) && is_folder(parent / kTrainingStateFolder)) return parent;
    return std::nullopt;
  }
  if (is_folder(path / kCheckpointsFolder)) return latest_checkpoint(path / kCheckpointsFolder);
  return latest_checkpoint(path);
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

std::optional<std::string> missing_part(const fs::path& checkpoint) {
  const fs::path model(kPretrainedModelFolder), state(kTrainingStateFolder);
  for (const fs::path& file :
       {model / kPolicyConfigFile, model / kTrainConfigFile, state / kTrainingStepFile})
    if (!is_whole_json_file(checkpoint / file)) return file.string();

  // Shards are complete when their .metadata is there: it is written last.
  const fs::path shards = model / kShardedModelFolder;
  if (is_folder(checkpoint / shards) && !is_there(checkpoint / shards / ".metadata"))
    return (shards / ".metadata").string();
  const bool adapter = is_there(checkpoint / model / kAdapterModelFile);
  const fs::path weights = model / (adapter ? kAdapterModelFile : kModelFile);
  if (!is_whole_tensor_file(checkpoint / weights) &&
      (is_there(checkpoint / weights) || !is_folder(checkpoint / shards)))
    return weights.string();

  if (!is_whole_tensor_file(checkpoint / state / kRngStateFile))
    return (state / kRngStateFile).string();
  if (is_folder(checkpoint / state / kShardedOptimizerFolder)) {
    const fs::path metadata = state / kShardedOptimizerFolder / ".metadata";
    if (!is_there(checkpoint / metadata)) return metadata.string();
    return std::nullopt;
  }
  if (!is_whole_tensor_file(checkpoint / state / kOptimizerStateFile))
    return (state / kOptimizerStateFile).string();
  if (!is_whole_json_file(checkpoint / state / kOptimizerParamGroupsFile))
    return (state / kOptimizerParamGroupsFile).string();
  return std::nullopt;
}

std::optional<fs::path> read_last(const fs::path& checkpoints) {
  auto target = last_target(checkpoints);
  if (!target || missing_part(*target)) return std::nullopt;
  return target;
}

bool point_last_at(const fs::path& checkpoints, const std::string& folder) {
  const fs::path last = checkpoints / kLastName;
  if (is_real_folder(last)) {
    log::warning("{}: is a real folder, not a link, and is left alone; resume with {}",
                 last.string(), (checkpoints / folder).string());
    return false;
  }
  const fs::path fresh = checkpoints / kNewLastName;
  if (::unlink(fresh.c_str()) != 0 && errno != ENOENT)
    fail_system(errno, "{}: cannot be removed", fresh.string());
  if (::symlink(folder.c_str(), fresh.c_str()) != 0) {
    const int error = errno;
    // FAT, some network shares and some FUSE mounts have no links; each says so in its own way.
    if (error != EPERM && error != ENOTSUP && error != ENOSYS && error != EINVAL)
      fail_system(error, "{}: cannot be made", fresh.string());
    FileWriter writer(fresh);
    writer.write(folder);
    writer.commit();
  }
  if (::rename(fresh.c_str(), last.c_str()) != 0) {
    const int error = errno;
    ::unlink(fresh.c_str());
    fail_system(error, "{}: cannot be replaced", last.string());
  }
  sync_directory(checkpoints);
  return true;
}

std::optional<fs::path> latest_checkpoint(const fs::path& checkpoints) {
  if (auto last = read_last(checkpoints)) return last;
  for (fs::path& folder : step_folders(checkpoints))
    if (!missing_part(folder)) return std::move(folder);
  return std::nullopt;
}

fs::path resolve_checkpoint(const fs::path& given) {
  const fs::path path = plain_path(given);
  const auto checkpoint = find_checkpoint(path);
  if (!checkpoint) {
    if (is_there(path / kPolicyConfigFile) || path.filename() == kPolicyConfigFile)
      fail(
          "{}: is a policy without training state, which cannot be resumed; use it with "
          "--policy.path",
          given.string());
    fail(
        "{}: holds no complete checkpoint; expected a train_config.json, a pretrained_model "
        "folder, "
        "a checkpoint such as checkpoints/000040, or an output folder",
        given.string());
  }
  if (const auto missing = missing_part(*checkpoint))
    fail("{}: is no complete checkpoint: {} is missing or cut off{}", checkpoint->string(),
         *missing, suggestion(checkpoint->parent_path()));
  return *checkpoint;
}

fs::path resolve_pretrained_model(const fs::path& given) {
  fs::path path = plain_path(given);
  if (!is_folder(path) && path.filename() != kLastName) path = parent_of(path);
  if (is_there(path / kPolicyConfigFile)) return path;
  const auto checkpoint = find_checkpoint(path);
  if (!checkpoint || !is_there(*checkpoint / kPretrainedModelFolder / kPolicyConfigFile))
    fail(
        "{}: holds no policy: expected a config.json there, or a checkpoint with "
        "pretrained_model/config.json",
        given.string());
  return *checkpoint / kPretrainedModelFolder;
}

}  // namespace lerobot::checkpoint
