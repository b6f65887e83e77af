#include "lerobot/checkpoint/checkpoint_writer.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"

namespace lerobot::checkpoint {
namespace {

// ".000040.tmp-1234-0": written by process 1234. ".000040.old-1234-0": what had the name 000040
// until process 1234 replaced it. The leading dot keeps both out of config::step_folders().
constexpr std::string_view kTemporary = "tmp";
constexpr std::string_view kReplaced = "old";

std::string hidden_name(const std::string& folder, std::string_view kind) {
  static std::atomic<int> counter{0};  // several saves of one process may follow closely
  return fmt::format(".{}.{}-{}-{}", folder, kind, ::getpid(), counter++);
}

struct HiddenName {
  std::string folder;
  std::string kind;
};

/// The parts of a hidden_name(); nothing for any other name.
std::optional<HiddenName> parse_hidden_name(const std::string& name) {
  const auto dot = name.find('.', 1), dash = name.find('-');
  if (!name.starts_with('.') || dot == name.npos || dash == name.npos || dash < dot)
    return std::nullopt;
  HiddenName parts{name.substr(1, dot - 1), name.substr(dot + 1, dash - dot - 1)};
  if (!config::parse_step_folder_name(parts.folder) ||
      (parts.kind != kTemporary && parts.kind != kReplaced))
    return std::nullopt;
  return parts;
}

/// Locks a folder for as long as the descriptor lives. A file system without locks gives none.
UniqueFd lock_folder(const fs::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) ::flock(fd.get(), LOCK_EX | LOCK_NB);
  return fd;
}

/// Whether nobody writes into the folder any more: its writer held a lock and is gone.
bool is_abandoned(const fs::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return errno == ENOTDIR || errno == ELOOP;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  // No locks here: a save takes minutes at most, so a day of silence means that it is over.
  constexpr auto kLongGone = std::chrono::hours(24);
  std::error_code error;
  const auto changed = fs::last_write_time(folder, error);
  return !error && fs::file_time_type::clock::now() - changed > kLongGone;
}

void remove_or_warn(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log::warning("{}: cannot be removed: {}", path.string(), error.message());
}

bool exists_at_all(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

/// Removes what dead runs left; puts back what one of them had moved aside and not yet replaced.
void clean_up(const fs::path& checkpoints) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error))
    paths.push_back(entry.path());
  for (const fs::path& path : paths) {
    const auto hidden = parse_hidden_name(path.filename().string());
    if (!hidden || !is_abandoned(path)) continue;
    const fs::path final_path = checkpoints / hidden->folder;
    const bool put_back = hidden->kind == kReplaced && !exists_at_all(final_path);
    if (put_back && ::rename(path.c_str(), final_path.c_str()) == 0) continue;
    remove_or_warn(path);
  }
}

void sync_file(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0)
    fail_system(errno, "{}: cannot flush to disk", path.string());
}

/// Flushes everything below `folder`, then the folder.
void sync_tree(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory())
      sync_tree(entry.path());
    else if (entry.is_regular_file())
      sync_file(entry.path());
  }
  sync_directory(folder);
}

/// Moves `from` to the name `to`, whatever `to` is now, and deletes what was there.
void replace_as_unit(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
    fail_system(errno, "{}: cannot take its name", to.string());
  // One step, where the kernel and the file system can: afterwards `from` is the old folder.
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    remove_or_warn(from);
    return;
  }
  // Otherwise two steps. A kill between them leaves the old folder aside; clean_up() puts it back.
  const fs::path aside = to.parent_path() / hidden_name(to.filename().string(), kReplaced);
  if (::rename(to.c_str(), aside.c_str()) != 0)
    fail_system(errno, "{}: cannot be moved out of the way", to.string());
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    ::rename(aside.c_str(), to.c_str());
    fail_system(error, "{}: cannot take its name", to.string());
  }
  remove_or_warn(aside);
}

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string_view remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "; free space there, or choose an --output_dir on another disk";
    case EROFS:
    case EACCES:
    case EPERM:
      return "; make the folder writable, or choose another --output_dir";
    case EIO:
      return "; the disk reports a fault: choose an --output_dir on another one";
    default:
      return "";
  }
}

/// Runs one entry's function; whatever it throws becomes an Error.
void write_entry(const FileEntry& entry, const fs::path& directory) {
  check_internal(
      entry.relative_path.is_relative() && *entry.relative_path.lexically_normal().begin() != "..",
      "a file of a checkpoint lies outside it");
  const fs::path path = directory / entry.relative_path;
  fs::create_directories(path.parent_path());
  entry.write(path);
}

std::uint64_t sum_over_ranks(const distributed::Communicator& ranks, std::uint64_t bytes) {
  std::uint64_t sum = 0;
  for (const std::string& text : ranks.all_gather_text(std::to_string(bytes)))
    sum += std::stoull(text);
  return sum;
}

}  // namespace

FileEntry tensor_file(fs::path relative_path, serialization::NamedTensors tensors,
                      std::map<std::string, std::string> metadata) {
  constexpr std::uint64_t kHeaderBytes = 128;  // of one tensor, roughly
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes() + name.size() + kHeaderBytes;
  return {std::move(relative_path), bytes,
          [tensors = std::move(tensors), metadata = std::move(metadata)](const fs::path& path) {
            serialization::save_safetensors(path, tensors, metadata);
          }};
}

FileEntry json_file(fs::path relative_path, const Json& value) {
  return text_file(std::move(relative_path), to_python_json(value, 4));
}

FileEntry text_file(fs::path relative_path, std::string text) {
  const std::uint64_t bytes = text.size();
  return {std::move(relative_path), bytes, [text = std::move(text)](const fs::path& path) {
            FileWriter writer(path);
            writer.write(text);
            writer.commit();
          }};
}

CheckpointWriter::CheckpointWriter(const fs::path& checkpoints, std::int64_t total_steps,
                                   distributed::Communicator ranks)
    : checkpoints_(fs::absolute(checkpoints).lexically_normal()),
      total_steps_(total_steps),
      ranks_(std::move(ranks)) {
  if (ranks_.rank() != 0) return;
  std::error_code error;
  fs::create_directories(checkpoints_, error);
  if (error)
    fail("{}: cannot be created: {}{}", checkpoints_.string(), error.message(),
         remedy(error.value()));
  if (::access(checkpoints_.c_str(), W_OK | X_OK) != 0) {
    const int code = errno;
    fail("{}: cannot be written to: {}{}", checkpoints_.string(), system_error_text(code),
         remedy(code));
  }
  clean_up(checkpoints_);
}

CheckpointWriter::Pending::Pending(fs::path directory, fs::path final_path, UniqueFd lock)
    : directory_(std::move(directory)),
      final_path_(std::move(final_path)),
      lock_(std::move(lock)) {}

CheckpointWriter::Pending::Pending(Pending&& other) noexcept
    : directory_(std::exchange(other.directory_, {})),
      final_path_(std::move(other.final_path_)),
      lock_(std::move(other.lock_)) {}

CheckpointWriter::Pending::~Pending() {
  if (!directory_.empty()) remove_or_warn(directory_);
}

fs::path CheckpointWriter::Pending::commit() {
  check_internal(!directory_.empty(), "a checkpoint is committed twice");
  sync_tree(directory_);
  const fs::path checkpoints = final_path_.parent_path();
  replace_as_unit(directory_, final_path_);
  directory_.clear();
  sync_directory(checkpoints);
  point_last_at(checkpoints, final_path_.filename().string());
  return final_path_;
}

CheckpointWriter::Pending CheckpointWriter::begin(std::int64_t step, std::uint64_t bytes) {
  struct statvfs status {};
  if (::statvfs(checkpoints_.c_str(), &status) != 0)
    fail_system(errno, "{}: cannot be looked at", checkpoints_.string());
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  const std::uint64_t needed = bytes + bytes / 100 + (std::uint64_t{1} << 16);
  // Some network file systems report no sizes at all.
  if (status.f_blocks > 0 && free < needed)
    throw SystemError(fmt::format("{}: {} are free, the checkpoint needs about {}",
                                  checkpoints_.string(), megabytes(free), megabytes(needed)),
                      ENOSPC);

  const std::string folder = config::step_folder_name(step, total_steps_);
  const fs::path directory = checkpoints_ / hidden_name(folder, kTemporary);
  if (::mkdir(directory.c_str(), 0777) != 0)
    fail_system(errno, "{}: cannot be created", directory.string());
  return {directory, checkpoints_ / folder, lock_folder(directory)};
}

fs::path CheckpointWriter::save(std::int64_t step, std::span<const FileEntry> files) {
  const auto failed = [&](std::string_view message, int error_number) {
    const auto previous = latest_checkpoint(checkpoints_);
    fail("cannot save the checkpoint of step {}: {}{} ({})", step, message, remedy(error_number),
         previous ? fmt::format("the checkpoint {} is intact", previous->string())
                  : "there is no earlier checkpoint");
  };
  try {
    std::uint64_t bytes = 0;
    for (const FileEntry& file : files) bytes += file.bytes;
    const bool is_main = ranks_.rank() == 0;
    std::optional<Pending> pending;
    const std::uint64_t all_bytes = sum_over_ranks(ranks_, bytes);
    if (is_main) pending.emplace(begin(step, all_bytes));
    const fs::path directory =
        ranks_.broadcast_text(is_main ? pending->directory().string() : std::string());
    for (const FileEntry& file : files) write_entry(file, directory);
    ranks_.barrier();
    return ranks_.broadcast_text(is_main ? pending->commit().string() : std::string());
  } catch (const SystemError& error) {
    failed(error.what(), error.error_number());
  } catch (const fs::filesystem_error& error) {
    failed(fmt::format("{}: {}", error.path1().string(), error.code().message()),
           error.code().value());
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    failed(error.what(), 0);
  }
  throw InternalError("unreachable");
}

}  // namespace lerobot::checkpoint
