#include "lerobot/checkpoint/layout.h"

#include <cerrno>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/base/log.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {
namespace {

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

/// A safetensors file whose header and length agree.
bool is_whole_tensor_file(const fs::path& path) {
  if (!is_there(path)) return false;
  try {
    const serialization::SafetensorsFile file(path);
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

}  // namespace

std::optional<std::string> missing_part(const fs::path& checkpoint) {
  const fs::path model(config::kPretrainedModelFolder), state(config::kTrainingStateFolder);
  for (const fs::path& file : {model / config::kPolicyConfigFile, model / config::kTrainConfigFile,
                               state / kTrainingStepFile})
    if (!is_whole_json_file(checkpoint / file)) return file.string();

  // Shards are complete when their .metadata is there: it is written last.
  const fs::path shards = model / kShardedModelFolder;
  if (is_folder(checkpoint / shards) && !is_there(checkpoint / shards / ".metadata"))
    return (shards / ".metadata").string();
  const fs::path adapter_config = model / config::kAdapterConfigFile;
  const bool adapter =
      is_there(checkpoint / model / kAdapterModelFile) || is_there(checkpoint / adapter_config);
  if (adapter && !is_whole_json_file(checkpoint / adapter_config)) return adapter_config.string();
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
  auto target = config::named_by_last(checkpoints / config::kLastName);
  if (!target || missing_part(*target)) return std::nullopt;
  return target;
}

bool point_last_at(const fs::path& checkpoints, const std::string& folder) {
  const fs::path last = checkpoints / config::kLastName;
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
  for (fs::path& folder : config::step_folders(checkpoints))
    if (!missing_part(folder)) return std::move(folder);
  return std::nullopt;
}

void require_complete(const fs::path& checkpoint) {
  const auto missing = missing_part(checkpoint);
  if (!missing) return;
  const auto newest = latest_checkpoint(checkpoint.parent_path());
  fail("{}: is no complete checkpoint: {} is missing or cut off{}", checkpoint.string(), *missing,
       newest ? fmt::format("; the newest complete one there is {}", newest->string()) : "");
}

}  // namespace lerobot::checkpoint
