// From the shards of a checkpoint to one file of weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lerobot/checkpoint/dcp_metadata.h"

namespace lerobot::checkpoint {

/// How far a conversion is. Bytes are those of tensors.
struct ConvertProgress {
  std::size_t tensors = 0;
  std::size_t all_tensors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t all_bytes = 0;
};

struct ConvertOptions {
  /// Removes the shards after the file is complete, verified and flushed.
  bool delete_dcp = false;
  /// Called before each tensor and at the end. What it throws ends the conversion.
  std::function<void(const ConvertProgress&)> progress;
};

struct Converted {
  fs::path file;
  ConvertProgress total;
};

/// The tensors of saved weights by the names that they have in a file of weights: the one
/// dictionary around all of them (LeRobot's is `model`) is dropped. Throws Error naming `folder`
/// for values that are no tensors and for deeper nesting. They point into `metadata`.
std::vector<std::pair<std::string, const DcpEntry*>> named_weights(const DcpMetadata& metadata,
                                                                   const std::string& folder);

/// The pretrained_model folder that `path` means: a checkpoint, its pretrained_model or the shards
/// in it, `last`, or the run's folder. Throws Error that says what is missing.
fs::path find_sharded_model(const fs::path& path);

/// Merges pretrained_model/pytorch_model_fsdp_0 into pretrained_model/model.safetensors, or into
/// adapter_model.safetensors beside an adapter_config.json; dtypes stay. The file is written beside
/// its name, flushed, opened again and compared with the shards' description, then renamed over
/// whatever had the name: it is complete or absent. Holds about twice the largest tensor in memory.
/// Throws Error naming the file or tensor; the folder is then as it was.
Converted convert_dcp(const fs::path& pretrained_model, const ConvertOptions& options = {});

}  // namespace lerobot::checkpoint
