#include "lerobot/checkpoint/dcp_metadata.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/serialization/pickle.h"
#include "lerobot/serialization/torch_storage.h"

namespace lerobot::checkpoint {
namespace {

using serialization::PickleDict;
using serialization::PickleGlobal;
using serialization::PickleList;
using serialization::PickleObject;
using serialization::PickleTuple;
using serialization::PickleValue;

using Numbers = std::vector<std::int64_t>;

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFileSystemModule = "torch.distributed.checkpoint.filesystem";
/// More than torch itself can handle; keeps recursions and loops short.
constexpr std::size_t kMaxDimensions = 64;

const std::vector<std::string_view>& allowed_globals() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result = {
        "torch.Size",
        "torch.serialization._get_layout",
        // How Python 3.11.0 to 3.11.3 name the constant of an enumeration (the memory format).
        "builtins.getattr",
        // The folder's name at the time of writing; in its own module since Python 3.13.
        "pathlib.PosixPath",
        "pathlib.WindowsPath",
        "pathlib._local.PosixPath",
        "pathlib._local.WindowsPath",
        fmt::format("{}._StorageInfo", kFileSystemModule),
    };
    for (const char* type :
         {"Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata",
          "BytesStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"})
      result.push_back(fmt::format("{}.{}", kMetadataModule, type));
    for (const serialization::TorchType& type : serialization::kTorchTypes)
      result.push_back(fmt::format("torch.{}", type.dtype));
    return result;
  }();
  static const std::vector<std::string_view> views(names.begin(), names.end());
  return views;
}

/// Number of elements; dimensions beside an empty one count as well, as torch computes strides from
/// them.
std::int64_t element_count(const Numbers& sizes, std::string_view what) {
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : sizes) {
    empty |= size == 0;
    count = checked_mul(count, std::max<std::int64_t>(size, 1), what);
  }
  return empty ? 0 : count;
}

bool overlap(const DcpBlock& a, const DcpBlock& b) {
  for (std::size_t d = 0; d < a.sizes.size(); ++d)
    if (a.offsets[d] >= b.offsets[d] + b.sizes[d] || b.offsets[d] >= a.offsets[d] + a.sizes[d])
      return false;
  return true;
}

/// The dimension along which most chunks begin at different places.
std::size_t most_divided_dimension(const std::vector<const DcpBlock*>& blocks,
                                   std::size_t dimensions) {
  std::size_t best = 0;
  std::size_t most = 0;
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::set<std::int64_t> begins;
    for (const DcpBlock* block : blocks) begins.insert(block->offsets[d]);
    if (begins.size() > most) {
      most = begins.size();
      best = d;
    }
  }
  return best;
}

void refuse_overlaps(const DcpTensor& tensor, std::string_view what) {
  std::vector<const DcpBlock*> blocks;
  for (const DcpChunk& chunk : tensor.chunks)
    if (!chunk.block.empty()) blocks.push_back(&chunk.block);
  if (blocks.size() < 2) return;
  if (tensor.size.empty()) fail("{}: a scalar is saved {} times", what, blocks.size());
  // In order of one dimension a block can only overlap those that begin before its end.
  const std::size_t d = most_divided_dimension(blocks, tensor.size.size());
  std::ranges::sort(blocks, {}, [d](const DcpBlock* block) { return block->offsets[d]; });
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::int64_t end = blocks[i]->offsets[d] + blocks[i]->sizes[d];
    for (std::size_t j = i + 1; j < blocks.size() && blocks[j]->offsets[d] < end; ++j)
      if (overlap(*blocks[i], *blocks[j]))
        fail("{}: elements are saved twice: the chunks at {} (size {}) and {} (size {}) overlap",
             what, blocks[i]->offsets, blocks[i]->sizes, blocks[j]->offsets, blocks[j]->sizes);
  }
}

class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  DcpMetadata parse(const PickleValue& root) {
    read_storage(field(root, kMetadataModule, "Metadata", "storage_data"));
    read_paths(field(root, kMetadataModule, "Metadata", "planner_data"));
    const PickleValue& entries = field(root, kMetadataModule, "Metadata", "state_dict_metadata");
    std::set<std::string_view> names;
    DcpMetadata metadata;
    for (const auto& [key, value] : dict(entries, "state_dict_metadata").items) {
      const std::string& name = text(*key, "a name in state_dict_metadata");
      if (!names.insert(name).second) fail("{}: {} is described twice", file_, name);
      metadata.add({name, path(name), content(name, *value)});
    }
    return metadata;
  }

 private:
  using Key = std::pair<std::string_view, std::optional<Numbers>>;

  // --- pieces of a pickle -----------------------------------------------------------------------

  const PickleDict& dict(const PickleValue& value, std::string_view what) const {
    const auto* found = value.get<PickleDict>();
    if (!found) fail("{}: {} is {}, expected a dict", file_, what, value.describe());
    return *found;
  }

  const std::string& text(const PickleValue& value, std::string_view what) const {
    const auto* found = value.get<std::string>();
    if (!found) fail("{}: {} is {}, expected a str", file_, what, value.describe());
    return *found;
  }

  std::uint64_t number(const PickleValue& value, std::string_view what) const {
    const auto* found = value.get<std::int64_t>();
    if (!found || *found < 0)
      fail("{}: {} is {}, expected a non-negative int", file_, what,
           found ? fmt::format("{}", *found) : value.describe());
    return static_cast<std::uint64_t>(*found);
  }

  const PickleObject* instance(const PickleValue& value, std::string_view module,
                               std::string_view type) const {
    const auto* object = value.get<PickleObject>();
    return object && object->is(module, type) ? object : nullptr;
  }

  const PickleValue* optional_field(const PickleValue& value, std::string_view module,
                                    std::string_view type, std::string_view name) const {
    const PickleObject* object = instance(value, module, type);
    if (!object) fail("{}: expected a {}, found {}", file_, type, value.describe());
    const auto* state = object->state ? object->state->get<PickleDict>() : nullptr;
    return state ? state->find(name) : nullptr;
  }

  const PickleValue& field(const PickleValue& value, std::string_view module, std::string_view type,
                           std::string_view name) const {
    const PickleValue* found = optional_field(value, module, type, name);
    if (!found) fail("{}: a {} lacks its {}", file_, type, name);
    return *found;
  }

  /// torch.Size((2, 3)), or the bare tuple.
  Numbers sizes(const PickleValue& value, std::string_view what) const {
    const PickleTuple* tuple = value.get<PickleTuple>();
    if (const PickleObject* size = instance(value, "torch", "Size");
        size && size->arguments.size() == 1)
      tuple = size->arguments[0]->get<PickleTuple>();
    if (!tuple) fail("{}: {} is {}, expected a torch.Size", file_, what, value.describe());
    if (tuple->items.size() > kMaxDimensions)
      fail("{}: {} has {} dimensions", file_, what, tuple->items.size());
    Numbers result;
    for (const PickleValue* item : tuple->items)
      result.push_back(static_cast<std::int64_t>(number(*item, what)));
    return result;
  }

  // --- the three tables -------------------------------------------------------------------------

  void read_storage(const PickleValue& value) {
    for (const auto& [key, info] : dict(value, "storage_data").items) {
      const std::string& name =
          text(field(*key, kMetadataModule, "MetadataIndex", "fqn"), "a name in storage_data");
      const PickleValue* place = optional_field(*key, kMetadataModule, "MetadataIndex", "offset");
      std::optional<Numbers> offsets;
      if (place && !place->is_none())
        offsets = sizes(*place, fmt::format("the offset of a chunk of {}", name));
      if (!storage_.emplace(Key(name, std::move(offsets)), item(name, *info)).second)
        fail("{}: storage_data holds a chunk of {} twice", file_, name);
    }
  }

  DcpItem item(const std::string& name, const PickleValue& info) const {
    const auto get = [&](std::string_view which) -> const PickleValue& {
      return field(info, kFileSystemModule, "_StorageInfo", which);
    };
    if (const PickleValue* transforms =
            optional_field(info, kFileSystemModule, "_StorageInfo", "transform_descriptors");
        transforms && !transforms->is_none())
      fail("{}: {} was written through extensions (compression), which are not supported", file_,
           name);
    DcpItem result;
    result.file = text(get("relative_path"), fmt::format("the file of {}", name));
    if (result.file.empty() || result.file == "." || result.file == ".." ||
        result.file.find('/') != std::string::npos || result.file.find('\0') != std::string::npos)
      fail("{}: {} lies in \"{}\", expected the name of a file beside .metadata", file_, name,
           result.file);
    result.offset = number(get("offset"), fmt::format("the offset of {}", name));
    result.length = number(get("length"), fmt::format("the length of {}", name));
    return result;
  }

  void read_paths(const PickleValue& value) {
    if (value.is_none()) return;
    for (const auto& [key, parts] : dict(value, "planner_data").items) {
      const std::string& name = text(*key, "a name in planner_data");
      const auto* tuple = parts->get<PickleTuple>();
      if (!tuple || tuple->items.empty())
        fail("{}: the path of {} is {}, expected a tuple of names and positions", file_, name,
             tuple ? "empty" : parts->describe());
      DcpPath path;
      for (const PickleValue* part : tuple->items) {
        if (const auto* key_part = part->get<std::string>())
          path.emplace_back(*key_part);
        else
          path.emplace_back(
              static_cast<std::int64_t>(number(*part, fmt::format("the path of {}", name))));
      }
      paths_.insert_or_assign(name, std::move(path));
    }
  }

  std::optional<DcpPath> path(const std::string& name) const {
    const auto found = paths_.find(name);
    if (found == paths_.end()) return std::nullopt;
    return found->second;
  }

  std::variant<DcpTensor, DcpValue> content(const std::string& name, const PickleValue& value) {
    if (!instance(value, kMetadataModule, "BytesStorageMetadata")) return tensor(name, value);
    const auto found = storage_.find(Key(name, std::nullopt));
    if (found == storage_.end()) fail("{}: storage_data lacks {}", file_, name);
    return DcpValue{found->second};
  }

  // --- tensors ----------------------------------------------------------------------------------

  DcpTensor tensor(const std::string& name, const PickleValue& value) {
    const auto get = [&](std::string_view which) -> const PickleValue& {
      return field(value, kMetadataModule, "TensorStorageMetadata", which);
    };
    DcpTensor tensor;
    tensor.dtype = dtype(name, get("properties"));
    tensor.size = sizes(get("size"), fmt::format("the size of {}", name));
    const auto* chunks = get("chunks").get<PickleList>();
    if (!chunks) fail("{}: the chunks of {} are no list", file_, name);
    for (const PickleValue* chunk : chunks->items)
      tensor.chunks.push_back(this->chunk(name, *chunk));
    check_coverage(tensor, fmt::format("{}: {}", file_, name));
    return tensor;
  }

  c10::ScalarType dtype(const std::string& name, const PickleValue& properties) const {
    const PickleObject* object = instance(properties, kMetadataModule, "TensorProperties");
    const auto* state = object && object->state ? object->state->get<PickleTuple>() : nullptr;
    // dtype, layout, requires_grad, memory format, pin_memory
    if (!state || state->items.size() != 5)
      fail("{}: the properties of {} are {}, expected a TensorProperties", file_, name,
           properties.describe());
    const auto* global = state->items[0]->get<PickleGlobal>();
    const auto type = std::ranges::find(serialization::kTorchTypes, global ? global->name : "",
                                        &serialization::TorchType::dtype);
    if (!global || global->module != "torch" || type == std::end(serialization::kTorchTypes))
      fail("{}: the dtype of {} is {}", file_, name, state->items[0]->describe());
    if (const PickleObject* layout =
            instance(*state->items[1], "torch.serialization", "_get_layout")) {
      const auto* which =
          layout->arguments.size() == 1 ? layout->arguments[0]->get<std::string>() : nullptr;
      if (!which || *which != "torch.strided")
        fail("{}: {} has the layout {}, only torch.strided is supported", file_, name,
             which ? *which : "unknown");
    }
    return type->type;
  }

  DcpChunk chunk(const std::string& name, const PickleValue& value) {
    const auto get = [&](std::string_view which) {
      return sizes(field(value, kMetadataModule, "ChunkStorageMetadata", which),
                   fmt::format("{} of a chunk of {}", which, name));
    };
    DcpChunk chunk;
    chunk.block.offsets = get("offsets");
    chunk.block.sizes = get("sizes");
    const auto found = storage_.find(Key(name, chunk.block.offsets));
    if (found != storage_.end()) {
      chunk.item = found->second;
    } else if (!chunk.block.empty()) {
      fail("{}: storage_data lacks the chunk of {} at {}", file_, name, chunk.block.offsets);
    }
    return chunk;
  }

  const std::string& file_;
  std::map<Key, DcpItem> storage_;
  std::map<std::string_view, DcpPath> paths_;
};

}  // namespace

bool DcpBlock::empty() const {
  return std::ranges::any_of(sizes, [](std::int64_t size) { return size == 0; });
}

bool DcpBlock::within(const std::vector<std::int64_t>& size) const {
  if (offsets.size() != size.size() || sizes.size() != size.size()) return false;
  for (std::size_t d = 0; d < size.size(); ++d)
    if (offsets[d] < 0 || sizes[d] < 0 || offsets[d] > size[d] || sizes[d] > size[d] - offsets[d])
      return false;
  return true;
}

void DcpMetadata::add(DcpEntry entry) {
  check_internal(index_.emplace(entry.name, entries_.size()).second,
                 "two entries of a DCP folder have one name");
  entries_.push_back(std::move(entry));
}

const DcpEntry* DcpMetadata::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::uint64_t dcp_block_bytes(const std::vector<std::int64_t>& sizes, c10::ScalarType dtype,
                              std::string_view what) {
  const auto bytes = checked_mul(element_count(sizes, what),
                                 static_cast<std::int64_t>(c10::elementSize(dtype)), what);
  return static_cast<std::uint64_t>(bytes);
}

void check_coverage(const DcpTensor& tensor, std::string_view what) {
  const std::string size_of = fmt::format("{}: its size", what);
  dcp_block_bytes(tensor.size, tensor.dtype, size_of);
  for (const auto& [block, item] : tensor.chunks)
    if (!block.within(tensor.size))
      fail("{}: its chunk at {} of size {} does not lie within its size {}", what, block.offsets,
           block.sizes, tensor.size);
  refuse_overlaps(tensor, what);
  std::int64_t covered = 0;
  for (const DcpChunk& chunk : tensor.chunks) covered += element_count(chunk.block.sizes, size_of);
  if (const std::int64_t expected = element_count(tensor.size, size_of); covered != expected)
    fail("{}: {} of its {} elements are missing: chunks are incomplete", what, expected - covered,
         expected);
}

DcpMetadata parse_dcp_metadata(std::span<const std::uint8_t> bytes, const std::string& name) {
  // Sizes and names are shared by reference: written out, a byte stands for a value or two.
  const serialization::PickleLimits limits{.max_values = 1000 + 16 * bytes.size()};
  const auto pickle = serialization::unpickle(bytes, name, allowed_globals(), limits);
  return Parser(name).parse(*pickle.root);
}

DcpMetadata read_dcp_metadata(const fs::path& folder) {
  const fs::path file = folder / kDcpMetadataFile;
  std::error_code error;
  if (!fs::is_directory(folder, error)) fail("{}: no such folder", folder.string());
  if (!fs::exists(file, error))
    fail(
        "{}: lacks .metadata, which is written last: the save was cut off, or not all files were "
        "copied",
        folder.string());
  const std::string content = read_text_file(file);
  return parse_dcp_metadata({reinterpret_cast<const std::uint8_t*>(content.data()), content.size()},
                            file.string());
}

}  // namespace lerobot::checkpoint
