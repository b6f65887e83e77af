// What a folder of torch.distributed.checkpoint (DCP) holds: the content of its `.metadata`, read
// and written.
//
//   pytorch_model_fsdp_0/
//     .metadata      a pickle of torch.distributed.checkpoint.metadata.Metadata; written last
//     __0_0.distcp   what rank 0 wrote: items, one behind the other, each a file of torch.save
//     __1_0.distcp
//
// A tensor is cut into chunks, blocks of its index space that do not overlap; each chunk is an item
// in one of the files. Anything else (a learning rate, a list of names) is one item.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include <c10/core/ScalarType.h>

namespace lerobot::checkpoint {

namespace fs = std::filesystem;

inline constexpr const char* kDcpMetadataFile = ".metadata";

/// Where an item lies.
struct DcpItem {
  std::string file;  // a bare name in the folder
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  bool operator==(const DcpItem&) const = default;
};

/// A block of a tensor's index space: dimension d covers [offsets[d], offsets[d] + sizes[d]).
struct DcpBlock {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;

  bool empty() const;
  /// Whether it lies within a tensor of that size, of as many dimensions.
  bool within(const std::vector<std::int64_t>& size) const;
  bool operator==(const DcpBlock&) const = default;
};

struct DcpChunk {
  DcpBlock block;
  DcpItem item;  // of an empty chunk it may be missing: then its file is ""
};

struct DcpTensor {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> size;
  std::vector<DcpChunk> chunks;
};

/// Anything but a tensor.
struct DcpValue {
  DcpItem item;
};

/// Place of an entry in the nested dictionaries and lists that were saved.
using DcpPath = std::vector<std::variant<std::string, std::int64_t>>;

struct DcpEntry {
  std::string name;  // the path's parts joined by dots
  /// Nothing when the writer did not record it.
  std::optional<DcpPath> path;
  std::variant<DcpTensor, DcpValue> content;
};

/// Names are unique. In a parsed one every chunk lies within its tensor and the chunks of a tensor
/// cover each element exactly once.
class DcpMetadata {
 public:
  void add(DcpEntry entry);

  /// In the order in which they were saved.
  const std::vector<DcpEntry>& entries() const { return entries_; }
  /// Null when there is none.
  const DcpEntry* find(std::string_view name) const;

 private:
  std::vector<DcpEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
};

/// Bytes of a block's elements. Throws Error naming `what` when they overflow.
std::uint64_t dcp_block_bytes(const std::vector<std::int64_t>& sizes, c10::ScalarType dtype,
                              std::string_view what);

/// Throws Error naming `what` (the file and the tensor) unless every chunk lies within the tensor
/// and each element is in exactly one of them.
void check_coverage(const DcpTensor& tensor, std::string_view what);

/// Reads the pickle. Nothing in it is run, and classes that a `.metadata` does not need are
/// refused. `name` stands for the file in messages. Throws Error naming the file, the tensor and
/// what is wrong with it.
DcpMetadata parse_dcp_metadata(std::span<const std::uint8_t> bytes, const std::string& name);

/// The same from FOLDER/.metadata. Throws Error for a folder without one: a save that was cut off.
DcpMetadata read_dcp_metadata(const fs::path& folder);

/// What torch records about a save besides its content. Its reader does not use it.
struct DcpOrigin {
  fs::path folder;      // under which name
  std::string save_id;  // a UUID
};

/// The pickle that torch's reader loads: its classes, the order of their fields and its protocol.
/// Throws Error naming an entry whose dtype torch has no name for.
std::string pickle_dcp_metadata(const DcpMetadata& metadata, const DcpOrigin& origin);

/// Writes FOLDER/.metadata as a unit: the folder is complete when it is there. Throws Error.
void write_dcp_metadata(const fs::path& folder, const DcpMetadata& metadata,
                        const DcpOrigin& origin);

}  // namespace lerobot::checkpoint
