// Folders of torch.distributed.checkpoint in the least form that torch's reader accepts, made for a
// test: any cut of any tensor, and wrong ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/checkpoint/dcp_metadata.h"
#include "lerobot/serialization/pickle.h"
#include "lerobot/serialization/torch_archive.h"
#include "lerobot/serialization/torch_storage.h"

namespace lerobot::checkpoint {

/// The pickle of a `.metadata`, in protocol 2.
class MadeMetadata {
 public:
  /// `constants_by_name`: as Python 3.11.0 to 3.11.3 pickle the constants of enumerations.
  static std::string pickle(const std::vector<DcpEntry>& entries, bool constants_by_name = false) {
    MadeMetadata made;
    made.constants_by_name_ = constants_by_name;
    made.write(entries);
    return made.writer_.finish();
  }

 private:
  static constexpr const char* kModule = "torch.distributed.checkpoint.metadata";

  void begin_instance(const char* module, const char* type, std::size_t fields) {
    writer_.begin_object(module, type);
    writer_.begin_tuple(0);
    writer_.end_tuple();
    writer_.new_object();
    writer_.begin_dict(fields);
  }
  void end_instance() {
    writer_.end_dict();
    writer_.build();
    writer_.end_object();
  }
  template <class Arguments>
  void call(const char* module, const char* function, const Arguments& argument) {
    writer_.begin_object(module, function);
    writer_.begin_tuple(1);
    argument();
    writer_.end_tuple();
    writer_.call();
    writer_.end_object();
  }
  void size(const std::vector<std::int64_t>& numbers) {
    call("torch", "Size", [&] {
      writer_.begin_tuple(numbers.size());
      for (const std::int64_t number : numbers) writer_.integer(number);
      writer_.end_tuple();
    });
  }

  void write(const std::vector<DcpEntry>& entries) {
    begin_instance(kModule, "Metadata", 3);
    writer_.text("state_dict_metadata");
    writer_.begin_dict(entries.size());
    for (const DcpEntry& entry : entries) {
      writer_.text(entry.name);
      if (const auto* tensor = std::get_if<DcpTensor>(&entry.content)) {
        write(*tensor);
      } else {
        begin_instance(kModule, "BytesStorageMetadata", 0);
        end_instance();
      }
    }
    writer_.end_dict();
    write_paths(entries);
    write_storage(entries);
    end_instance();
  }

  void write(const DcpTensor& tensor) {
    begin_instance(kModule, "TensorStorageMetadata", 3);
    writer_.text("properties");
    writer_.begin_object(kModule, "TensorProperties");
    writer_.begin_tuple(0);
    writer_.end_tuple();
    writer_.new_object();
    writer_.begin_tuple(5);
    const auto* type = std::ranges::find(serialization::kTorchTypes, tensor.dtype,
                                         &serialization::TorchType::type);
    writer_.global("torch", type->dtype);
    call("torch.serialization", "_get_layout", [&] { writer_.text("torch.strided"); });
    writer_.boolean(false);
    write_memory_format();
    writer_.boolean(false);
    writer_.end_tuple();
    writer_.build();
    writer_.end_object();
    writer_.text("size");
    size(tensor.size);
    writer_.text("chunks");
    writer_.begin_list(tensor.chunks.size());
    for (const DcpChunk& chunk : tensor.chunks) {
      begin_instance(kModule, "ChunkStorageMetadata", 2);
      writer_.text("offsets");
      size(chunk.block.offsets);
      writer_.text("sizes");
      size(chunk.block.sizes);
      end_instance();
    }
    writer_.end_list();
    end_instance();
  }

  void write_memory_format() {
    if (!constants_by_name_)
      return call(kModule, "_MEM_FORMAT_ENCODING", [&] { writer_.integer(0); });
    writer_.begin_object("builtins", "getattr");
    writer_.begin_tuple(2);
    writer_.global(kModule, "_MEM_FORMAT_ENCODING");
    writer_.text("TORCH_CONTIGUOUS_FORMAT");
    writer_.end_tuple();
    writer_.call();
    writer_.end_object();
  }

  void write_paths(const std::vector<DcpEntry>& entries) {
    writer_.text("planner_data");
    const auto has_path = [](const DcpEntry& entry) { return entry.path.has_value(); };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(entries, has_path));
    if (count == 0) return writer_.none();
    writer_.begin_dict(count);
    for (const DcpEntry& entry : entries) {
      if (!entry.path) continue;
      writer_.text(entry.name);
      writer_.begin_tuple(entry.path->size());
      for (const auto& part : *entry.path) {
        if (const auto* name = std::get_if<std::string>(&part))
          writer_.text(*name);
        else
          writer_.integer(std::get<std::int64_t>(part));
      }
      writer_.end_tuple();
    }
    writer_.end_dict();
  }

  void write_storage(const std::vector<DcpEntry>& entries) {
    struct Row {
      const std::string& name;
      const std::vector<std::int64_t>* offsets;
      const DcpItem& item;
    };
    std::vector<Row> rows;
    for (const DcpEntry& entry : entries) {
      if (const auto* value = std::get_if<DcpValue>(&entry.content))
        rows.push_back({entry.name, nullptr, value->item});
      else
        for (const DcpChunk& chunk : std::get<DcpTensor>(entry.content).chunks)
          if (!chunk.item.file.empty())
            rows.push_back({entry.name, &chunk.block.offsets, chunk.item});
    }
    writer_.text("storage_data");
    writer_.begin_dict(rows.size());
    for (const Row& row : rows) {
      begin_instance(kModule, "MetadataIndex", 3);
      writer_.text("fqn");
      writer_.text(row.name);
      writer_.text("offset");
      if (row.offsets)
        size(*row.offsets);
      else
        writer_.none();
      writer_.text("index");
      writer_.none();
      end_instance();
      begin_instance("torch.distributed.checkpoint.filesystem", "_StorageInfo", 3);
      writer_.text("relative_path");
      writer_.text(row.item.file);
      writer_.text("offset");
      writer_.integer(static_cast<std::int64_t>(row.item.offset));
      writer_.text("length");
      writer_.integer(static_cast<std::int64_t>(row.item.length));
      end_instance();
    }
    writer_.end_dict();
  }

  serialization::PickleWriter writer_;
  bool constants_by_name_ = false;
};

/// A folder in the making: tensor() and value() append items, finish() writes `.metadata`.
class MadeDcp {
 public:
  explicit MadeDcp(fs::path folder) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
  }

  /// {"model": {name: whole}}, whole cut at these rows: rows [0, cuts[0]) in __0_0.distcp and so
  /// on.
  void rows(const std::string& name, const at::Tensor& whole, std::vector<std::int64_t> cuts) {
    DcpTensor tensor{whole.scalar_type(), whole.sizes().vec(), {}};
    cuts.push_back(whole.size(0));
    std::int64_t begin = 0;
    for (std::size_t rank = 0; rank < cuts.size(); ++rank) {
      DcpBlock block{std::vector<std::int64_t>(tensor.size.size(), 0), tensor.size};
      block.offsets[0] = begin;
      block.sizes[0] = cuts[rank] - begin;
      tensor.chunks.push_back({block, append(fmt::format("__{}_0.distcp", rank),
                                             whole.narrow(0, begin, cuts[rank] - begin).clone())});
      begin = cuts[rank];
    }
    add(name, std::move(tensor));
  }

  /// Any cut: each block of `whole` in a file of its own rank.
  void blocks(const std::string& name, const at::Tensor& whole,
              const std::vector<DcpBlock>& blocks) {
    DcpTensor tensor{whole.scalar_type(), whole.sizes().vec(), {}};
    int rank = 0;
    for (const DcpBlock& block : blocks) {
      at::Tensor part = whole;
      for (std::size_t d = 0; d < block.sizes.size(); ++d)
        part = part.narrow(static_cast<std::int64_t>(d), block.offsets[d], block.sizes[d]);
      tensor.chunks.push_back({block, append(fmt::format("__{}_0.distcp", rank++), part.clone())});
    }
    add(name, std::move(tensor));
  }

  void value(const std::string& name, const serialization::TorchValue& value) {
    add(name, DcpValue{append("__0_0.distcp", value)});
  }

  /// To be changed before finish().
  std::vector<DcpEntry>& entries() { return entries_; }
  DcpTensor& last_tensor() { return std::get<DcpTensor>(entries_.back().content); }
  const fs::path& folder() const { return folder_; }

  void finish() const {
    std::ofstream(folder_ / kDcpMetadataFile, std::ios::binary) << MadeMetadata::pickle(entries_);
  }

 private:
  void add(const std::string& name, std::variant<DcpTensor, DcpValue> content) {
    entries_.push_back({"model." + name, DcpPath{std::string("model"), name}, std::move(content)});
  }

  DcpItem append(const std::string& file, const serialization::TorchValue& value) {
    std::string bytes;
    serialization::write_torch_archive(
        [&](std::span<const std::uint8_t> part) {
          bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
        },
        "archive", value);
    const DcpItem item{file, lengths_[file], bytes.size()};
    lengths_[file] += bytes.size();
    std::ofstream(folder_ / file, std::ios::binary | std::ios::app) << bytes;
    return item;
  }

  fs::path folder_;
  std::vector<DcpEntry> entries_;
  std::map<std::string, std::uint64_t> lengths_;
};

}  // namespace lerobot::checkpoint
