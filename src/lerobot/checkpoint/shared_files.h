// Files of a checkpoint that several ranks make together. All ranks list the same ones, at the same
// places (CheckpointWriter::save).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lerobot/checkpoint/checkpoint_writer.h"
#include "lerobot/checkpoint/dcp_writer.h"
#include "lerobot/distributed/communicator.h"
#include "lerobot/distributed/mesh.h"
#include "lerobot/distributed/shard.h"

namespace lerobot::checkpoint {

/// A safetensors file of whole tensors, written by the first rank while the others of its replica
/// send their rows, one tensor after the other: nobody ever holds more than its own rows and one
/// tensor. `tensors` are on the CPU and held until the file is written.
FileEntry gathered_file(fs::path relative_path, std::vector<distributed::LocalTensor> tensors,
                        const distributed::Mesh& mesh, const distributed::Communicator& ranks,
                        std::map<std::string, std::string> metadata = {});

/// A folder of torch.distributed.checkpoint: every rank writes its own file, the first one
/// `.metadata`. `recorded_folder` is the name that the folder will have.
FileEntry dcp_folder(const fs::path& relative_path, std::vector<LocalDcpEntry> entries,
                     const distributed::Mesh& mesh, const distributed::Communicator& ranks,
                     fs::path recorded_folder);

}  // namespace lerobot::checkpoint
