// safetensors files (https://github.com/huggingface/safetensors): 8 bytes of header length, a JSON
// header, then the tensors' bytes, little-endian and row-major.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lerobot::serialization {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// A safetensors file opened for reading. The whole header is checked on opening: lengths, offsets,
/// holes, overlaps, trailing bytes, duplicate keys, shape overflow; each is an Error that names the
/// file and the tensor. Thread-safe.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// In file order.
  const std::vector<std::string>& names() const;
  bool contains(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const;
  std::vector<std::int64_t> shape(std::string_view name) const;
  at::ScalarType dtype(std::string_view name) const;
  /// A copy of one tensor on the CPU. Throws Error naming the file and the tensor when absent.
  at::Tensor tensor(std::string_view name) const;
  /// The tensor in the mapped file, without a copy unless its bytes lie misaligned for their type.
  /// Read-only: writing to it raises SIGSEGV. It keeps the mapping alive after this object is gone;
  /// the file must not be truncated meanwhile.
  at::Tensor view(std::string_view name) const;
  /// Copies of all, in file order.
  NamedTensors all() const;

 private:
  struct Contents;
  std::unique_ptr<const Contents> contents_;
};

/// A tensor that is made only when its turn to be written comes, so that a writer holds one at a
/// time.
struct LazyTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<std::int64_t> shape;
  /// Returns the tensor (any device, any strides) with that dtype and shape. Called once.
  std::function<at::Tensor()> make;
};

/// The order in which save_safetensors() writes tensors, and calls their make(). Throws Error for a
/// type that the format lacks.
std::vector<const LazyTensor*> safetensors_order(std::span<const LazyTensor> tensors);

/// Writes tensors (any device; made contiguous one at a time) to the byte as the Python library
/// does: larger element type first, then name; the header padded with spaces to a multiple of 8.
/// `metadata` is {"format": "pt"} for model files. The file is complete and flushed when this
/// returns; on an Error nothing stays at `path`. Throws Error for a duplicate name and for a type
/// that the format lacks.
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});
void save_safetensors(const std::filesystem::path& path, std::span<const LazyTensor> tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace lerobot::serialization
