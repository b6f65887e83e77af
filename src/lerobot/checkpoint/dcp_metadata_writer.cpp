// The pickle of a `.metadata` as torch 2.11 writes it.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/checkpoint/dcp_metadata.h"
#include "lerobot/serialization/pickle.h"
#include "lerobot/serialization/torch_storage.h"

namespace lerobot::checkpoint {
namespace {

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFileSystemModule = "torch.distributed.checkpoint.filesystem";
constexpr const char* kVersion = "1.0.0";

class MetadataPickler {
 public:
  std::string pickle(const DcpMetadata& metadata, const DcpOrigin& origin) {
    begin_instance(kMetadataModule, "Metadata", 5);
    put_contents(metadata.entries());
    put_paths(metadata.entries());
    put_places(metadata.entries());
    put_origin(origin);
    field("version");
    pickle_.text(kVersion);
    end_instance();
    return pickle_.finish();
  }

 private:
  // --- pieces -----------------------------------------------------------------------------------

  /// An object without fields so far.
  void begin_plain_instance(const char* module, const char* type) {
    pickle_.begin_object(module, type);
    pickle_.begin_tuple(0);
    pickle_.end_tuple();
    pickle_.new_object();
  }
  void begin_instance(const char* module, const char* type, std::size_t fields) {
    begin_plain_instance(module, type);
    pickle_.begin_dict(fields);
  }
  void field(const char* name) { pickle_.text(name); }
  void end_instance() {
    pickle_.end_dict();
    pickle_.build();
    pickle_.end_object();
  }

  /// module.function(argument), where `put_argument` writes the argument.
  template <class Put>
  void call(const char* module, const char* function, const Put& put_argument) {
    pickle_.begin_object(module, function);
    pickle_.begin_tuple(1);
    put_argument();
    pickle_.end_tuple();
    pickle_.call();
    pickle_.end_object();
  }

  void put_size(const std::vector<std::int64_t>& numbers) {
    call("torch", "Size", [&] {
      pickle_.begin_tuple(numbers.size());
      for (const std::int64_t number : numbers) pickle_.integer(number);
      pickle_.end_tuple();
    });
  }

  void put_count(std::uint64_t count, const char* what) {
    pickle_.integer(checked_cast<std::int64_t>(count, what));
  }

  // --- what was saved ---------------------------------------------------------------------------

  void put_contents(const std::vector<DcpEntry>& entries) {
    field("state_dict_metadata");
    pickle_.begin_dict(entries.size());
    for (const DcpEntry& entry : entries) {
      pickle_.text(entry.name);
      if (const auto* tensor = std::get_if<DcpTensor>(&entry.content)) {
        put_tensor(entry.name, *tensor);
      } else {
        begin_plain_instance(kMetadataModule, "BytesStorageMetadata");
        pickle_.end_object();
      }
    }
    pickle_.end_dict();
  }

  void put_tensor(const std::string& name, const DcpTensor& tensor) {
    begin_instance(kMetadataModule, "TensorStorageMetadata", 3);
    field("properties");
    put_properties(name, tensor.dtype);
    field("size");
    put_size(tensor.size);
    field("chunks");
    pickle_.begin_list(tensor.chunks.size());
    for (const DcpChunk& chunk : tensor.chunks) {
      begin_instance(kMetadataModule, "ChunkStorageMetadata", 2);
      field("offsets");
      put_size(chunk.block.offsets);
      field("sizes");
      put_size(chunk.block.sizes);
      end_instance();
    }
    pickle_.end_list();
    end_instance();
  }

  void put_properties(const std::string& name, c10::ScalarType dtype) {
    const auto* type =
        std::ranges::find(serialization::kTorchTypes, dtype, &serialization::TorchType::type);
    if (type == std::end(serialization::kTorchTypes))
      fail("{}: cannot save a tensor of dtype {}", name, c10::toString(dtype));
    begin_plain_instance(kMetadataModule, "TensorProperties");
    pickle_.begin_tuple(5);
    pickle_.global("torch", type->dtype);
    call("torch.serialization", "_get_layout", [&] { pickle_.text("torch.strided"); });
    pickle_.boolean(false);  // requires_grad
    constexpr std::int64_t kContiguous = 0;
    call(kMetadataModule, "_MEM_FORMAT_ENCODING", [&] { pickle_.integer(kContiguous); });
    pickle_.boolean(false);  // pin_memory
    pickle_.end_tuple();
    pickle_.build();
    pickle_.end_object();
  }

  // --- where it stood in the nested dictionaries ------------------------------------------------

  void put_paths(const std::vector<DcpEntry>& entries) {
    field("planner_data");
    const auto has_path = [](const DcpEntry& entry) { return entry.path.has_value(); };
    pickle_.begin_dict(static_cast<std::size_t>(std::ranges::count_if(entries, has_path)));
    for (const DcpEntry& entry : entries) {
      if (!entry.path) continue;
      pickle_.text(entry.name);
      pickle_.begin_tuple(entry.path->size());
      for (const auto& part : *entry.path) {
        if (const auto* key = std::get_if<std::string>(&part))
          pickle_.text(*key);
        else
          pickle_.integer(std::get<std::int64_t>(part));
      }
      pickle_.end_tuple();
    }
    pickle_.end_dict();
  }

  // --- where it lies in the files ---------------------------------------------------------------

  void put_places(const std::vector<DcpEntry>& entries) {
    field("storage_data");
    std::size_t count = 0;
    for_each_item(entries, [&](const std::string&, const DcpChunk*, std::size_t, const DcpItem&) {
      ++count;
    });
    pickle_.begin_dict(count);
    for_each_item(entries, [&](const std::string& name, const DcpChunk* chunk, std::size_t number,
                               const DcpItem& item) {
      put_index(name, chunk, number);
      put_place(item);
    });
    pickle_.end_dict();
  }

  template <class Function>
  static void for_each_item(const std::vector<DcpEntry>& entries, const Function& function) {
    for (const DcpEntry& entry : entries) {
      if (const auto* value = std::get_if<DcpValue>(&entry.content)) {
        function(entry.name, nullptr, 0, value->item);
        continue;
      }
      const auto& chunks = std::get<DcpTensor>(entry.content).chunks;
      for (std::size_t i = 0; i < chunks.size(); ++i)
        if (!chunks[i].item.file.empty()) function(entry.name, &chunks[i], i, chunks[i].item);
    }
  }

  void put_index(const std::string& name, const DcpChunk* chunk, std::size_t number) {
    begin_instance(kMetadataModule, "MetadataIndex", 3);
    field("fqn");
    pickle_.text(name);
    field("index");
    if (chunk)
      put_count(number, "number of a chunk");
    else
      pickle_.none();
    field("offset");
    if (chunk)
      put_size(chunk->block.offsets);
    else
      pickle_.none();
    end_instance();
  }

  void put_place(const DcpItem& item) {
    begin_instance(kFileSystemModule, "_StorageInfo", 3);
    field("relative_path");
    pickle_.text(item.file);
    field("offset");
    put_count(item.offset, "offset of an item");
    field("length");
    put_count(item.length, "length of an item");
    end_instance();
  }

  void put_origin(const DcpOrigin& origin) {
    field("storage_meta");
    begin_instance(kMetadataModule, "StorageMeta", 4);
    field("checkpoint_id");
    std::vector<std::string> parts;
    for (const fs::path& part : origin.folder)
      if (!part.empty()) parts.push_back(part.string());
    pickle_.begin_object("pathlib", "PosixPath");
    pickle_.begin_tuple(parts.size());
    for (const std::string& part : parts) pickle_.text(part);
    pickle_.end_tuple();
    pickle_.call();
    pickle_.end_object();
    field("save_id");
    pickle_.text(origin.save_id);
    field("load_id");
    pickle_.none();
    field("modules");
    pickle_.begin_list(0);
    pickle_.end_list();
    end_instance();
  }

  serialization::PickleWriter pickle_{serialization::PickleProtocol::k4};
};

}  // namespace

std::string pickle_dcp_metadata(const DcpMetadata& metadata, const DcpOrigin& origin) {
  return MetadataPickler().pickle(metadata, origin);
}

void write_dcp_metadata(const fs::path& folder, const DcpMetadata& metadata,
                        const DcpOrigin& origin) {
  const std::string bytes = pickle_dcp_metadata(metadata, origin);
  const fs::path unfinished = folder / fmt::format("{}.tmp", kDcpMetadataFile);
  FileWriter writer(unfinished);
  writer.write(bytes);
  writer.commit();
  std::error_code error;
  fs::rename(unfinished, folder / kDcpMetadataFile, error);
  if (error)
    fail_system(error.value(), "{}: cannot be renamed to {}", unfinished.string(),
                kDcpMetadataFile);
  sync_directory(folder);
}

}  // namespace lerobot::checkpoint
