#include "lerobot/checkpoint/dcp_reader.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::checkpoint {
namespace {

using serialization::PickleDict;
using serialization::PickleList;
using serialization::PickleTuple;
using serialization::PickleValue;
using serialization::TorchArchive;
using serialization::TorchDict;
using serialization::TorchList;
using serialization::TorchTuple;
using serialization::TorchValue;

struct NamedItem {
  const DcpItem* item;
  const std::string* name;
};

/// Every item that is ever read, by file.
std::map<std::string, std::vector<NamedItem>> items_by_file(const DcpMetadata& metadata,
                                                            const std::string& folder) {
  std::map<std::string, std::vector<NamedItem>> files;
  for (const DcpEntry& entry : metadata.entries()) {
    if (const auto* value = std::get_if<DcpValue>(&entry.content)) {
      files[value->item.file].push_back({&value->item, &entry.name});
      continue;
    }
    const auto& tensor = std::get<DcpTensor>(entry.content);
    for (const DcpChunk& chunk : tensor.chunks) {
      if (chunk.block.empty()) continue;
      files[chunk.item.file].push_back({&chunk.item, &entry.name});
      // Items are not compressed: what is too short cannot hold the chunk, and no more memory is
      // asked for than the folder has bytes.
      const std::string what = fmt::format("{}: {}", folder, entry.name);
      const std::uint64_t bytes = dcp_block_bytes(chunk.block.sizes, tensor.dtype, what);
      if (chunk.item.length < bytes)
        fail("{}: its chunk at {} has {} bytes in {}, but its size and dtype make {}", what,
             chunk.block.offsets, chunk.item.length, chunk.item.file, bytes);
    }
  }
  return files;
}

void check_file(const fs::path& path, std::vector<NamedItem>& items) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error)
    fail("{}: cannot be read ({}), but {} lies in it: copy the whole folder", path.string(),
         error.message(), *items.front().name);
  std::ranges::sort(items, {}, [](const NamedItem& a) { return a.item->offset; });
  std::uint64_t end = 0;
  const NamedItem* previous = nullptr;
  for (const NamedItem& next : items) {
    const auto& [file, offset, length] = *next.item;
    if (previous && offset < end)
      fail("{}: {} and {} overlap at byte {}", path.string(), *previous->name, *next.name, offset);
    end = checked_add(offset, length, fmt::format("{}: end of {}", path.string(), *next.name));
    if (end > size)
      fail("{}: has {} bytes, but {} ends at byte {}: the file is cut off", path.string(), size,
           *next.name, end);
    previous = &next;
  }
}

/// What two blocks share, or nothing.
std::optional<DcpBlock> intersection(const DcpBlock& a, const DcpBlock& b) {
  DcpBlock common;
  for (std::size_t d = 0; d < a.sizes.size(); ++d) {
    const std::int64_t begin = std::max(a.offsets[d], b.offsets[d]);
    const std::int64_t end = std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
    if (end <= begin) return std::nullopt;
    common.offsets.push_back(begin);
    common.sizes.push_back(end - begin);
  }
  return common;
}

/// The part of `tensor`, which holds the elements of `block`, that `part` names.
at::Tensor view_of(at::Tensor tensor, const DcpBlock& block, const DcpBlock& part) {
  for (std::size_t d = 0; d < part.sizes.size(); ++d)
    tensor = tensor.narrow(static_cast<std::int64_t>(d), part.offsets[d] - block.offsets[d],
                           part.sizes[d]);
  return tensor;
}

TorchValue plain_value(const TorchArchive& archive, const PickleValue& value,
                       const std::string& what) {
  const auto all = [&](const std::vector<const PickleValue*>& items) {
    std::vector<TorchValue> result;
    result.reserve(items.size());
    for (const PickleValue* item : items) result.push_back(plain_value(archive, *item, what));
    return result;
  };
  if (value.is_none()) return {};
  if (const auto* boolean = value.get<bool>()) return *boolean;
  if (const auto* integer = value.get<std::int64_t>()) return *integer;
  if (const auto* number = value.get<double>()) return *number;
  if (const auto* text = value.get<std::string>()) return *text;
  if (const auto* list = value.get<PickleList>()) return TorchList{all(list->items)};
  if (const auto* tuple = value.get<PickleTuple>()) return TorchTuple{all(tuple->items)};
  if (TorchArchive::is_tensor(value)) return archive.tensor(value);
  if (const auto* dict = value.get<PickleDict>()) {
    TorchDict result;
    for (const auto& [key, item] : dict->items) {
      const auto* name = key->get<std::string>();
      if (!name) fail("{}: a key of a dictionary is {}, expected a str", what, key->describe());
      result.items.emplace_back(*name, plain_value(archive, *item, what));
    }
    return result;
  }
  fail("{}: holds {}, expected None, a number, text, or a list or dictionary of these", what,
       value.describe());
}

}  // namespace

/// Memory for one item, kept from one to the next: fresh memory is handed out page by page, which
/// takes longer than reading into it.
class DcpReader::Scratch {
 public:
  struct Block {
    std::unique_ptr<std::uint8_t[]> data;
    std::size_t size = 0;
  };

  /// At least `size` bytes, uninitialised.
  Block take(std::size_t size) {
    Block block;
    {
      const std::lock_guard lock(mutex_);
      std::swap(block, idle_);
    }
    if (block.size < size) block = {std::make_unique_for_overwrite<std::uint8_t[]>(size), size};
    return block;
  }
  void give(Block block) {
    const std::lock_guard lock(mutex_);
    if (block.size > idle_.size) idle_ = std::move(block);
  }

 private:
  std::mutex mutex_;
  Block idle_;
};

/// The bytes of one item.
class DcpReader::ItemBytes {
 public:
  /// Read rather than mapped: a file that shrinks meanwhile is an error, not a signal.
  ItemBytes(const DcpReader& reader, const DcpItem& item)
      : scratch_(*reader.scratch_),
        size_(checked_cast<std::size_t>(item.length, "length of an item")),
        block_(scratch_.take(size_)) {
    const fs::path path = reader.folder_ / item.file;
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) fail_system(errno, "{}: cannot open", path.string());
    std::size_t done = 0;
    while (done < size_) {
      const ssize_t n = ::pread(fd.get(), block_.data.get() + done, size_ - done,
                                static_cast<off_t>(item.offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_system(errno, "{}: cannot read", path.string());
      if (n == 0) fail("{}: was cut off while it was read", path.string());
      done += static_cast<std::size_t>(n);
    }
  }
  ItemBytes(const ItemBytes&) = delete;
  ItemBytes& operator=(const ItemBytes&) = delete;
  ~ItemBytes() { scratch_.give(std::move(block_)); }

  std::span<const std::uint8_t> bytes() const { return {block_.data.get(), size_}; }

 private:
  Scratch& scratch_;
  std::size_t size_;
  Scratch::Block block_;
};

DcpReader::DcpReader(fs::path folder)
    : folder_(std::move(folder)),
      metadata_(read_dcp_metadata(folder_)),
      scratch_(std::make_shared<Scratch>()) {
  for (auto& [file, items] : items_by_file(metadata_, folder_.string()))
    check_file(folder_ / file, items);
}

const DcpTensor& DcpReader::described_tensor(std::string_view name) const {
  const DcpEntry* entry = metadata_.find(name);
  const auto* tensor = entry ? std::get_if<DcpTensor>(&entry->content) : nullptr;
  if (!tensor)
    fail("{}: {} {}", folder_.string(),
         entry ? "holds a plain value, not a tensor, under the name" : "holds no tensor", name);
  return *tensor;
}

const DcpTensor& DcpReader::described_tensor(std::string_view name, const DcpBlock& block) const {
  const DcpTensor& tensor = described_tensor(name);
  if (!block.within(tensor.size))
    fail("{}: the block at {} of size {} does not lie within {} of size {}", folder_.string(),
         block.offsets, block.sizes, name, tensor.size);
  return tensor;
}

void DcpReader::read_chunk(std::string_view name, const DcpTensor& tensor, const DcpChunk& chunk,
                           const DcpBlock& block, const at::Tensor& target) const {
  const auto common = intersection(chunk.block, block);
  if (!common) return;
  const std::string what =
      fmt::format("{}: {} at {}", (folder_ / chunk.item.file).string(), name, chunk.block.offsets);
  const ItemBytes item(*this, chunk.item);
  const TorchArchive archive(item.bytes(), what);
  const at::Tensor found = archive.view(archive.root());
  if (found.scalar_type() != tensor.dtype || found.sizes() != chunk.block.sizes)
    fail("{}: is a tensor of {} {}, but .metadata says {} {}", what,
         c10::toString(found.scalar_type()), found.sizes().vec(), c10::toString(tensor.dtype),
         chunk.block.sizes);
  view_of(target, block, *common).copy_(view_of(found, chunk.block, *common));
}

at::Tensor DcpReader::tensor(std::string_view name) const {
  const DcpTensor& tensor = described_tensor(name);
  return this->tensor(name, {std::vector<std::int64_t>(tensor.size.size(), 0), tensor.size});
}

at::Tensor DcpReader::tensor(std::string_view name, const DcpBlock& block) const {
  const DcpTensor& tensor = described_tensor(name, block);
  const at::Tensor result = at::empty(block.sizes, at::TensorOptions(tensor.dtype));
  read(name, block, result);
  return result;
}

void DcpReader::read(std::string_view name, const DcpBlock& block, const at::Tensor& target) const {
  const DcpTensor& tensor = described_tensor(name, block);
  check_internal(target.sizes() == block.sizes, "a tensor to read into has not the block's size");
  // Every element lies in one chunk.
  for (const DcpChunk& chunk : tensor.chunks)
    if (!chunk.block.empty()) read_chunk(name, tensor, chunk, block, target);
}

serialization::TorchValue DcpReader::value(std::string_view name) const {
  const DcpEntry* entry = metadata_.find(name);
  const auto* value = entry ? std::get_if<DcpValue>(&entry->content) : nullptr;
  if (!value)
    fail("{}: {} {}", folder_.string(),
         entry ? "holds a tensor, not a plain value, under the name" : "holds no value", name);
  const std::string what = fmt::format("{}: {}", (folder_ / value->item.file).string(), name);
  const ItemBytes item(*this, value->item);
  const TorchArchive archive(item.bytes(), what);
  return plain_value(archive, archive.root(), what);
}

}  // namespace lerobot::checkpoint
