// Reads a folder of torch.distributed.checkpoint for test_dcp.py to compare with torch's reading.
//   dump_dcp FOLDER OUT.safetensors
// OUT.safetensors gets every tensor under its name; OUT.json every other value. Each tensor is also
// assembled from blocks of two rows, and must come out the same.
#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/checkpoint/dcp_reader.h"
#include "lerobot/serialization/safetensors.h"

namespace {

using lerobot::Json;
namespace checkpoint = lerobot::checkpoint;
namespace serialization = lerobot::serialization;

/// Lists and tuples are told apart: {"tuple": [...]}.
Json as_json(const serialization::TorchValue& value) {
  struct Visitor {
    Json operator()(std::monostate) const { return nullptr; }
    Json operator()(bool plain) const { return plain; }
    Json operator()(std::int64_t plain) const { return plain; }
    Json operator()(double plain) const { return plain; }
    Json operator()(const std::string& plain) const { return plain; }
    Json operator()(const at::Tensor&) const { lerobot::fail("a tensor in a plain value"); }
    Json operator()(const serialization::TorchList& list) const { return all(list.items); }
    Json operator()(const serialization::TorchTuple& tuple) const {
      return Json{{"tuple", all(tuple.items)}};
    }
    Json operator()(const serialization::TorchDict& dict) const {
      Json result = Json::object();
      for (const auto& [key, item] : dict.items) result[key] = as_json(item);
      return result;
    }
    static Json all(const std::vector<serialization::TorchValue>& items) {
      Json result = Json::array();
      for (const auto& item : items) result.push_back(as_json(item));
      return result;
    }
  };
  return std::visit(Visitor{}, value.content);
}

void check_blocks(const checkpoint::DcpReader& reader, const std::string& name,
                  const at::Tensor& whole) {
  if (whole.numel() == 0 || whole.dim() == 0) return;
  constexpr std::int64_t kMostBlocks = 50;
  const std::int64_t step = std::max<std::int64_t>(2, whole.size(0) / kMostBlocks);
  std::vector<at::Tensor> parts;
  for (std::int64_t begin = 0; begin < whole.size(0); begin += step) {
    checkpoint::DcpBlock block{std::vector<std::int64_t>(whole.sizes().size(), 0),
                               whole.sizes().vec()};
    block.offsets[0] = begin;
    block.sizes[0] = std::min(step, whole.size(0) - begin);
    parts.push_back(reader.tensor(name, block));
  }
  if (!at::equal(at::cat(parts), whole))
    lerobot::fail("{}: blocks of rows are not the whole", name);
}

void dump(const std::string& folder, const std::string& out) {
  const checkpoint::DcpReader reader(folder);
  serialization::NamedTensors tensors;
  Json values = Json::object();
  for (const checkpoint::DcpEntry& entry : reader.metadata().entries()) {
    if (std::holds_alternative<checkpoint::DcpValue>(entry.content)) {
      values[entry.name] = as_json(reader.value(entry.name));
      continue;
    }
    tensors.emplace_back(entry.name, reader.tensor(entry.name));
    check_blocks(reader, entry.name, tensors.back().second);
  }
  serialization::save_safetensors(out, tensors);
  std::ofstream(out.substr(0, out.rfind('.')) + ".json") << values.dump();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: dump_dcp FOLDER OUT.safetensors\n";
    return 2;
  }
  try {
    dump(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
