// Tensors and values of a folder of torch.distributed.checkpoint, whole or in parts, whatever the
// number of ranks that wrote it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "lerobot/checkpoint/dcp_metadata.h"
#include "lerobot/serialization/torch_archive.h"

namespace lerobot::checkpoint {

/// Opening reads `.metadata` alone and checks it against the files' lengths. Reading a tensor holds
/// that tensor and one chunk, whose memory is kept for the next one. Thread-safe.
class DcpReader {
 public:
  /// Throws Error naming the folder, the file and the entry: no or a damaged `.metadata`, a missing
  /// or truncated file, items that overlap or are too short for what they hold.
  explicit DcpReader(fs::path folder);

  const fs::path& folder() const { return folder_; }
  const DcpMetadata& metadata() const { return metadata_; }

  /// The whole tensor, contiguous, on the CPU. Throws Error naming the file and the tensor when it
  /// is absent, or when what lies in the files is not what `.metadata` says.
  at::Tensor tensor(std::string_view name) const;
  /// A part of it; reads only the chunks that it touches. Throws Error for a block that leaves the
  /// tensor.
  at::Tensor tensor(std::string_view name, const DcpBlock& block) const;
  /// The same into `target`, which has the block's size and may be of another dtype or device.
  /// Holds one chunk besides.
  void read(std::string_view name, const DcpBlock& block, const at::Tensor& target) const;

  /// An entry that is no tensor. Throws Error naming it when it is absent, or more than None,
  /// numbers, text, and lists, tuples and dictionaries of these.
  serialization::TorchValue value(std::string_view name) const;

 private:
  const DcpTensor& described_tensor(std::string_view name) const;
  const DcpTensor& described_tensor(std::string_view name, const DcpBlock& block) const;
  /// Copies the elements of `block` that lie in the chunk.
  void read_chunk(std::string_view name, const DcpTensor& tensor, const DcpChunk& chunk,
                  const DcpBlock& block, const at::Tensor& target) const;

  class Scratch;
  class ItemBytes;

  fs::path folder_;
  DcpMetadata metadata_;
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace lerobot::checkpoint
