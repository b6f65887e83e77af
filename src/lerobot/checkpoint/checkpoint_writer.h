// Writing a checkpoint so that it is there or it is not.
//
// Files are written into a temporary folder beside the final name, flushed, and renamed into place
// as a unit; then `last` is replaced. A kill at any moment leaves the previous checkpoint usable
// and nothing half-written under a step's name.
//
// Several ranks write one checkpoint together: the first one makes the folder and commits it, and
// each writes its own files into it meanwhile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/distributed/communicator.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {

/// One file of a checkpoint. `write` gets the path to create; its folder exists. `bytes` is about
/// how large the file will be, for the check of free space.
struct FileEntry {
  fs::path relative_path;
  std::uint64_t bytes = 0;
  std::function<void(const fs::path&)> write;
};

/// A safetensors file. The tensors are held until it is written.
FileEntry tensor_file(fs::path relative_path, serialization::NamedTensors tensors,
                      std::map<std::string, std::string> metadata = {});
/// A JSON file as Python's json.dumps(value, indent=4) gives it. Serialised at once.
FileEntry json_file(fs::path relative_path, const Json& value);
/// A file with this content.
FileEntry text_file(fs::path relative_path, std::string text);

/// Not thread-safe; one writer a process.
class CheckpointWriter {
 public:
  /// `checkpoints` is <output_dir>/checkpoints and is created when missing; `total_steps` sets the
  /// number of digits in folder names. Removes temporary folders that dead runs left behind, and
  /// puts back a checkpoint that a kill caught between the two renames of a replacement. Throws
  /// Error when the folder can't be made or written to. Of several ranks the first one does all
  /// this; `ranks` is used by save() alone.
  CheckpointWriter(const fs::path& checkpoints, std::int64_t total_steps,
                   distributed::Communicator ranks = {});

  /// A checkpoint in the making: fill directory(), then commit(). Without commit() the destructor
  /// removes what was written.
  class Pending {
   public:
    Pending(Pending&&) noexcept;
    Pending& operator=(Pending&&) = delete;
    ~Pending();

    /// Absolute; on the same file system as the final name. Other ranks may write into it too.
    const fs::path& directory() const { return directory_; }
    /// Flushes every file and folder, takes the final name (replacing whatever has it, as a unit),
    /// replaces `last`. Returns the final path. Throws Error; the previous checkpoint is then
    /// intact.
    fs::path commit();

   private:
    friend class CheckpointWriter;
    Pending(fs::path directory, fs::path final_path, UniqueFd lock);

    fs::path directory_;
    fs::path final_path_;
    UniqueFd lock_;  // held while alive: how other runs see that the folder is in use
  };

  /// Throws Error when the file system has less than `bytes` (and a margin) free.
  Pending begin(std::int64_t step, std::uint64_t bytes);

  /// begin(), every entry, commit(). All ranks call it; an entry that makes ranks talk stands at
  /// the same place on each. A rank that fails throws, and leaves the others waiting until the
  /// world tells them; nothing is committed then. Throws Error that names the step, the file, the
  /// remedy and the checkpoint that is still there.
  fs::path save(std::int64_t step, std::span<const FileEntry> files);

  const fs::path& checkpoints() const { return checkpoints_; }

 private:
  fs::path checkpoints_;
  std::int64_t total_steps_;
  distributed::Communicator ranks_;
};

}  // namespace lerobot::checkpoint
