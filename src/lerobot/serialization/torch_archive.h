// Files of torch.save: the zip form (torch 1.6 and later) and the legacy form (a row of pickles,
// then the storages), read without Python; and the zip form written as torch 2.11 writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/serialization/pickle.h"
#include "lerobot/serialization/safetensors.h"
#include "lerobot/serialization/zip_archive.h"

namespace lerobot::serialization {

/// A file of torch.save opened for reading. Only what tensors need is accepted in its pickle:
/// rebuilding functions, storages, dtypes, torch.Size, OrderedDict. Thread-safe.
class TorchArchive {
 public:
  /// Throws Error naming the file for anything damaged, compressed, big-endian, TorchScript, or a
  /// global that is not accepted (named).
  explicit TorchArchive(const std::filesystem::path& path);
  /// The same from memory, which must outlive this object; `name` stands for the file in messages.
  TorchArchive(std::span<const std::uint8_t> bytes, std::string name);
  ~TorchArchive();
  TorchArchive(TorchArchive&&) noexcept;

  /// What was saved. Tensors are calls in it: ask is_tensor().
  const PickleValue& root() const;
  static bool is_tensor(const PickleValue& value);
  /// A contiguous copy on the CPU, whatever device it was saved from. Tensors that shared a storage
  /// do not share the copy. Throws Error for sizes, strides or offsets that leave the storage.
  at::Tensor tensor(const PickleValue& value) const;
  /// The same where it lies in the archive's bytes, when it is contiguous and aligned there, and a
  /// copy otherwise. Only to be read, and only while this object and its bytes live.
  at::Tensor view(const PickleValue& value) const;

 private:
  struct Contents;
  std::unique_ptr<const Contents> contents_;
};

/// The named tensors of a state dictionary: a torch archive whose root is a dict of tensors, or a
/// safetensors file, told apart by content. In file order.
NamedTensors read_state_dict(const std::filesystem::path& path);

class TorchValue;
struct TorchList {
  std::vector<TorchValue> items;
};
struct TorchTuple {
  std::vector<TorchValue> items;
};
struct TorchDict {
  std::vector<std::pair<std::string, TorchValue>> items;
  bool ordered = false;  // collections.OrderedDict
};

/// What can be saved.
class TorchValue {
 public:
  using Content = std::variant<std::monostate, bool, std::int64_t, double, std::string, at::Tensor,
                               TorchList, TorchTuple, TorchDict>;
  TorchValue() = default;  // None
  TorchValue(bool value) : content(value) {}
  TorchValue(std::int64_t value) : content(value) {}
  TorchValue(double value) : content(value) {}
  TorchValue(std::string value) : content(std::move(value)) {}
  TorchValue(const char* value) : content(std::string(value)) {}
  TorchValue(at::Tensor value) : content(std::move(value)) {}
  TorchValue(TorchList value) : content(std::move(value)) {}
  TorchValue(TorchTuple value) : content(std::move(value)) {}
  TorchValue(TorchDict value) : content(std::move(value)) {}

  Content content;
};

/// Writes what torch.save(value, path) writes, to the byte. Tensors that share a storage share it
/// in the file, and a view brings its whole storage; tensors of other devices are saved as
/// contiguous CPU tensors. The file is complete and flushed when this returns; on an Error nothing
/// stays at `path`.
void save_torch_archive(const std::filesystem::path& path, const TorchValue& value);

/// The same into `sink`, with members under `root_folder` (torch.save into a buffer: "archive").
void write_torch_archive(const ByteSink& sink, std::string_view root_folder,
                         const TorchValue& value);

}  // namespace lerobot::serialization
