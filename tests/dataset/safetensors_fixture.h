// The uint8 tensors of a fixture: the dataset room stands below nothing that reads safetensors.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lerobot/base/files.h"
#include "lerobot/base/json.h"

namespace lerobot::dataset {

using SafetensorsFixture = std::map<std::string, at::Tensor>;

inline SafetensorsFixture read_safetensors_fixture(const fs::path& path) {
  const MappedFile file(path);
  const auto* const bytes = file.bytes().data();
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, bytes, sizeof header_size);
  const auto* const header = reinterpret_cast<const char*>(bytes) + sizeof header_size;
  const Json entries = parse_json({header, header_size}, path.string());
  SafetensorsFixture tensors;
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__" || entry["dtype"] != "U8") continue;
    at::Tensor tensor = at::empty(entry["shape"].get<std::vector<std::int64_t>>(), at::kByte);
    std::memcpy(tensor.mutable_data_ptr(),
                header + header_size + entry["data_offsets"][0].get<std::size_t>(),
                tensor.nbytes());
    tensors.emplace(name, tensor);
  }
  return tensors;
}

}  // namespace lerobot::dataset
