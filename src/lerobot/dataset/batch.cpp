#include "lerobot/dataset/batch.h"

#include "lerobot/base/error.h"

namespace lerobot::dataset {

const at::Tensor& Batch::at(std::string_view key) const {
  const auto found = tensors.find(key);
  if (found != tensors.end()) return found->second;
  std::string keys;
  for (const auto& [name, tensor] : tensors) {
    if (!keys.empty()) keys += ", ";
    keys += name;
  }
  fail("the batch has no \"{}\"; it has {}", key, keys.empty() ? "nothing" : keys);
}

}  // namespace lerobot::dataset
