#include <algorithm>
#include <bit>
#include <unordered_set>

#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/serialization/safetensors.h"
#include "lerobot/serialization/safetensors_format.h"

namespace lerobot::serialization {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian");

const SafetensorsType* type_of(at::ScalarType dtype) {
  const auto found = std::ranges::find(kSafetensorsTypes, dtype, &SafetensorsType::dtype);
  return found == std::end(kSafetensorsTypes) ? nullptr : found;
}

std::span<const std::uint8_t> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()};
}

/// Tensor data as the file has it: on the CPU, contiguous, without lazy conjugation or negation.
at::Tensor plain_tensor(const at::Tensor& tensor) {
  return at::resolve_neg(at::resolve_conj(tensor.detach())).to(at::kCPU).contiguous();
}

/// JSON text of a string, UTF-8 kept, as the library writes it.
std::string quoted(const std::string& text, const std::filesystem::path& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail("{}: cannot write a name that is not UTF-8", path.string());
  }
}

}  // namespace

std::vector<const LazyTensor*> safetensors_order(std::span<const LazyTensor> tensors) {
  std::vector<const LazyTensor*> order;
  for (const LazyTensor& tensor : tensors) {
    if (!type_of(tensor.dtype))
      fail("tensor {} has the dtype {}, which safetensors lacks", tensor.name,
           c10::toString(tensor.dtype));
    order.push_back(&tensor);
  }
  std::ranges::sort(order, [](const LazyTensor* a, const LazyTensor* b) {
    return std::pair(type_of(a->dtype), std::string_view(a->name)) <
           std::pair(type_of(b->dtype), std::string_view(b->name));
  });
  return order;
}

void save_safetensors(const std::filesystem::path& path, std::span<const LazyTensor> tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<const LazyTensor*> order;
  try {
    order = safetensors_order(tensors);
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }

  std::string header = "{";
  if (!metadata.empty()) {
    header += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : metadata)
      header += fmt::format("{}:{},", quoted(key, path), quoted(value, path));
    header.back() = '}';
    header += ',';
  }
  std::uint64_t position = 0;
  std::unordered_set<std::string_view> names;
  for (const LazyTensor* tensor : order) {
    const SafetensorsType* type = type_of(tensor->dtype);
    if (!names.insert(tensor->name).second)
      fail("{}: two tensors are named {}", path.string(), tensor->name);
    SafetensorsEntry entry{tensor->name, type, tensor->shape, 0, 0};
    if (type->bits == 4) {
      if (entry.shape.empty())
        fail("{}: tensor {}: a scalar of dtype F4", path.string(), entry.name);
      entry.shape.back() *= 2;
    }
    const std::uint64_t end = position + bytes_in_file(path.string(), entry);
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                          quoted(entry.name, path), type->name, fmt::join(entry.shape, ","),
                          position, end);
    position = end;
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  header.append((kHeaderLengthBytes - header.size() % kHeaderLengthBytes) % kHeaderLengthBytes,
                ' ');
  if (header.size() > kMaxHeaderBytes)
    fail("{}: the header of {} tensors would have {} bytes, the format's limit is {}",
         path.string(), tensors.size(), header.size(), kMaxHeaderBytes);

  FileWriter writer(path);
  const std::uint64_t header_bytes = header.size();
  writer.write(std::string_view(reinterpret_cast<const char*>(&header_bytes), kHeaderLengthBytes));
  writer.write(header);
  for (const LazyTensor* tensor : order) {
    const at::Tensor value = plain_tensor(tensor->make());
    check_internal(value.scalar_type() == tensor->dtype && value.sizes() == tensor->shape,
                   "a lazy tensor differs from what was announced");
    writer.write(bytes_of(value));
  }
  writer.commit();
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<LazyTensor> lazy;
  lazy.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided)
      fail("{}: tensor {} is not a dense tensor", path.string(), name);
    lazy.push_back(
        {name, tensor.scalar_type(), tensor.sizes().vec(), [&tensor = tensor] { return tensor; }});
  }
  save_safetensors(path, lazy, metadata);
}

}  // namespace lerobot::serialization
