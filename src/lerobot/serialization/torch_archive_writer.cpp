#include <algorithm>
#include <map>

#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/serialization/torch_archive.h"
#include "lerobot/serialization/torch_storage.h"

namespace lerobot::serialization {
namespace {

/// Pickles the values and collects the storages that their tensors need.
class ArchivePickler {
 public:
  void value(const TorchValue& value) {
    std::visit([this](const auto& content) { put(content); }, value.content);
  }
  std::string finish() { return pickle_.finish(); }
  /// Tensors whose storages are to be written, in order of their keys 0, 1, ...
  const std::vector<at::Tensor>& storages() const { return storages_; }

 private:
  void put(std::monostate) { pickle_.none(); }
  void put(bool content) { pickle_.boolean(content); }
  void put(std::int64_t content) { pickle_.integer(content); }
  void put(double content) { pickle_.floating(content); }
  void put(const std::string& content) { pickle_.text(content); }

  void put(const TorchList& list) {
    pickle_.begin_list(list.items.size());
    for (const TorchValue& item : list.items) value(item);
    pickle_.end_list();
  }

  void put(const TorchTuple& tuple) {
    pickle_.begin_tuple(tuple.items.size());
    for (const TorchValue& item : tuple.items) value(item);
    pickle_.end_tuple();
  }

  void put(const TorchDict& dict) {
    const auto items = [&] {
      for (const auto& [key, item] : dict.items) {
        pickle_.text(key);
        value(item);
      }
    };
    if (!dict.ordered) {
      pickle_.begin_dict(dict.items.size());
      items();
      pickle_.end_dict();
      return;
    }
    begin_ordered_dict();
    pickle_.begin_items(dict.items.size());
    items();
    pickle_.end_items();
    pickle_.end_object();
  }

  void begin_ordered_dict() {
    pickle_.begin_object("collections", "OrderedDict");
    pickle_.begin_tuple(0);
    pickle_.end_tuple();
    pickle_.call();
  }

  void put(const at::Tensor& given) {
    if (!given.defined() || given.layout() != at::kStrided)
      throw InternalError("only dense tensors can be saved");
    at::Tensor tensor = at::resolve_neg(at::resolve_conj(given.detach()));
    if (!tensor.is_cpu()) tensor = tensor.contiguous().to(at::kCPU);
    const auto type = std::ranges::find(kTorchTypes, tensor.scalar_type(), &TorchType::type);
    if (type == std::end(kTorchTypes))
      fail("cannot save a tensor of dtype {}", c10::toString(tensor.scalar_type()));
    const bool typed = !type->storage.empty();

    pickle_.begin_object("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    pickle_.begin_tuple(typed ? 6 : 7);
    put_storage(tensor, *type);
    pickle_.integer(tensor.storage_offset());
    put_numbers(tensor.sizes());
    put_numbers(tensor.strides());
    pickle_.boolean(given.requires_grad());
    begin_ordered_dict();  // backward hooks
    pickle_.end_object();
    if (!typed) pickle_.global("torch", type->dtype);
    pickle_.end_tuple();
    pickle_.call();
    pickle_.end_object();
  }

  void put_storage(const at::Tensor& tensor, const TorchType& type) {
    const c10::Storage& storage = tensor.storage();
    const auto [known, added] =
        keys_.emplace(storage.unsafeGetStorageImpl(), std::to_string(storages_.size()));
    if (added) storages_.push_back(tensor);
    pickle_.begin_persistent_id();
    pickle_.begin_tuple(5);
    pickle_.text("storage");
    if (type.storage.empty())
      pickle_.global("torch.storage", "UntypedStorage");
    else
      pickle_.global("torch", type.storage);
    pickle_.text(known->second);
    pickle_.text("cpu");
    const std::size_t unit = type.storage.empty() ? 1 : tensor.element_size();
    pickle_.integer(checked_cast<std::int64_t>(storage.nbytes() / unit, "size of a storage"));
    pickle_.end_tuple();
    pickle_.end_persistent_id();
  }

  void put_numbers(at::IntArrayRef numbers) {
    pickle_.begin_tuple(numbers.size());
    for (const std::int64_t number : numbers) pickle_.integer(number);
    pickle_.end_tuple();
  }

  PickleWriter pickle_;
  std::map<const c10::StorageImpl*, std::string> keys_;
  std::vector<at::Tensor> storages_;
};

}  // namespace

void write_torch_archive(const ByteSink& sink, std::string_view root_folder,
                         const TorchValue& value) {
  ArchivePickler pickler;
  pickler.value(value);
  ZipWriter zip(sink);
  const auto member = [&](std::string_view name) {
    return fmt::format("{}/{}", root_folder, name);
  };
  zip.add(member("data.pkl"), pickler.finish());
  zip.add(member(".format_version"), "1");
  zip.add(member(".storage_alignment"), fmt::format("{}", ZipWriter::kAlignment));
  zip.add(member("byteorder"), "little");
  std::size_t key = 0;
  for (const at::Tensor& tensor : pickler.storages()) {
    const c10::Storage& storage = tensor.storage();
    zip.add(member(fmt::format("data/{}", key++)),
            std::span(static_cast<const std::uint8_t*>(storage.data()), storage.nbytes()));
  }
  zip.add(member("version"), "3\n");
  zip.add(member(".data/serialization_id"), zip.serialization_id());
  zip.finish();
}

void save_torch_archive(const std::filesystem::path& path, const TorchValue& value) {
  FileWriter writer(path);
  // torch names the root folder after the file.
  write_torch_archive([&](std::span<const std::uint8_t> bytes) { writer.write(bytes); },
                      path.stem().string(), value);
  writer.commit();
}

}  // namespace lerobot::serialization
