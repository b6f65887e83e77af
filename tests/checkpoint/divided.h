// A model divided among ranks that one process plays, for tests of saving and loading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "lerobot/checkpoint/dcp_entries.h"
#include "lerobot/checkpoint/dcp_writer.h"
#include "lerobot/distributed/mesh.h"
#include "lerobot/distributed/shard.h"
#include "lerobot/optim/optimizer.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {

inline at::Tensor counting(const std::vector<std::int64_t>& size,
                           at::ScalarType dtype = at::kFloat) {
  std::int64_t count = 1;
  for (const std::int64_t n : size) count *= n;
  return at::arange(count, at::kFloat).to(dtype).reshape(size);
}

/// What `mesh.rank` holds: tensors without dimensions and those named "buffer..." whole, the others
/// by rows. Copies.
inline std::vector<distributed::LocalTensor> part_of(const serialization::NamedTensors& whole,
                                                     const distributed::Mesh& mesh) {
  std::vector<distributed::LocalTensor> parts;
  for (const auto& [name, tensor] : whole) {
    distributed::LocalTensor part{name, tensor.clone(), tensor.sizes().vec(), 0, false};
    if (tensor.dim() > 0 && !name.starts_with("buffer")) {
      const auto rows = distributed::shard_rows(tensor.size(0), mesh.dp_shard, mesh.shard());
      part.tensor = tensor.narrow(0, rows.begin, rows.count).clone();
      part.first_row = rows.begin;
      part.divided = true;
    }
    parts.push_back(part);
  }
  return parts;
}

/// The same sizes with other values.
inline std::vector<distributed::LocalTensor> blank(std::vector<distributed::LocalTensor> parts) {
  for (auto& part : parts) part.tensor = at::full(part.tensor.sizes(), 77, part.tensor.options());
  return parts;
}

/// Every rank of `mesh` in turn.
inline std::vector<distributed::Mesh> ranks_of(distributed::Mesh mesh) {
  std::vector<distributed::Mesh> ranks;
  for (mesh.rank = 0; mesh.rank < mesh.world_size(); ++mesh.rank) ranks.push_back(mesh);
  return ranks;
}

/// AdamW on parts, those named "backbone..." in a second group.
inline std::unique_ptr<optim::Optimizer> optimizer_of(
    const std::vector<distributed::LocalTensor>& parts) {
  std::vector<optim::Group> groups(2);
  groups[1].lr = 1e-5;
  for (const auto& part : parts) {
    if (part.name.starts_with("buffer")) continue;
    at::Tensor parameter = part.tensor;
    parameter.requires_grad_(true);
    groups[part.name.starts_with("backbone") ? 1 : 0].parameters.emplace_back(part.name, parameter);
  }
  return optim::make_optimizer(config::AdamWConfig{}, std::move(groups));
}

/// Steps with the parameters as gradients; `skipped` gets none.
inline void step(optim::Optimizer& optimizer, int steps, std::string_view skipped = "") {
  for (int i = 0; i < steps; ++i) {
    for (const auto& group : optimizer.groups())
      for (const auto& [name, parameter] : group.parameters)
        if (name != skipped) at::Tensor(parameter).mutable_grad() = parameter.detach().clone();
    optimizer.step();
    optimizer.zero_grad();
  }
}

/// Writes a folder by all ranks; `entries_of(mesh)` are a rank's entries.
template <class EntriesOf>
void write_folder(const fs::path& folder, const distributed::Mesh& mesh,
                  const EntriesOf& entries_of) {
  fs::create_directories(folder);
  std::vector<std::string> reports;
  for (const auto& rank : ranks_of(mesh)) {
    const auto entries = entries_of(rank);
    reports.push_back(write_dcp_file(folder, entries, plan_dcp(entries, rank), rank.rank));
  }
  const auto entries = entries_of(ranks_of(mesh).front());
  finish_dcp(folder, entries, plan_dcp(entries, mesh), reports, folder);
}

inline void write_model(const fs::path& folder, const distributed::Mesh& mesh,
                        const serialization::NamedTensors& whole) {
  write_folder(folder, mesh, [&](const auto& rank) { return model_entries(part_of(whole, rank)); });
}

}  // namespace lerobot::checkpoint
