#include "lerobot/checkpoint/shared_files.h"

#include <utility>
#include <variant>

#include <ATen/ops/empty.h>

#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {
namespace {

using distributed::Communicator;
using distributed::LocalTensor;
using distributed::Mesh;

/// The whole tensor on rank 0: its own rows, then what the other ranks of its replica send.
at::Tensor receive_whole(const LocalTensor& local, const Mesh& mesh, const Communicator& ranks) {
  if (!local.divided) return local.tensor;
  at::Tensor whole = at::empty(local.global_size, local.tensor.options());
  const std::int64_t rows = local.global_size[0];
  for (std::int64_t shard = 0; shard < mesh.dp_shard; ++shard) {
    const auto range = distributed::shard_rows(rows, mesh.dp_shard, shard);
    const at::Tensor part = whole.narrow(0, range.begin, range.count);
    if (part.numel() == 0) continue;
    if (shard == mesh.shard())
      part.copy_(local.tensor);
    else
      ranks.receive(part, shard, /*tag=*/0).wait();
  }
  return whole;
}

void send_rows(const LocalTensor& local, const Communicator& ranks) {
  if (local.divided && local.tensor.numel() > 0)
    ranks.send(local.tensor.contiguous(), /*to=*/0, /*tag=*/0).wait();
}

std::uint64_t bytes_of(const std::vector<LocalTensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const LocalTensor& local : tensors) bytes += local.global_bytes();
  return bytes;
}

std::uint64_t bytes_of(const std::vector<LocalDcpEntry>& entries) {
  constexpr std::uint64_t kItemBytes = 2048;  // of one item's archive, besides its data
  std::uint64_t bytes = 0;
  for (const LocalDcpEntry& entry : entries) {
    bytes += kItemBytes;
    if (const auto* local = std::get_if<LocalTensor>(&entry.content))
      bytes += local->tensor.nbytes();
  }
  return bytes;
}

}  // namespace

FileEntry gathered_file(fs::path relative_path, std::vector<LocalTensor> tensors, const Mesh& mesh,
                        const Communicator& ranks, std::map<std::string, std::string> metadata) {
  const std::uint64_t bytes = mesh.rank == 0 ? bytes_of(tensors) : 0;
  const auto write = [tensors = std::move(tensors), mesh, ranks,
                      metadata = std::move(metadata)](const fs::path& path) {
    if (mesh.replica() != 0) return;
    std::vector<serialization::LazyTensor> lazy;
    for (const LocalTensor& local : tensors)
      lazy.push_back({local.name, local.tensor.scalar_type(), local.global_size,
                      [&local, &mesh, &ranks] { return receive_whole(local, mesh, ranks); }});
    if (mesh.rank == 0) {
      serialization::save_safetensors(path, lazy, metadata);
      return;
    }
    for (const serialization::LazyTensor* next : serialization::safetensors_order(lazy))
      send_rows(tensors[static_cast<std::size_t>(next - lazy.data())], ranks);
  };
  return {std::move(relative_path), bytes, write};
}

FileEntry dcp_folder(const fs::path& relative_path, std::vector<LocalDcpEntry> entries,
                     const Mesh& mesh, const Communicator& ranks, fs::path recorded_folder) {
  const std::uint64_t bytes = bytes_of(entries);
  const auto write = [entries = std::move(entries), mesh, ranks,
                      recorded = std::move(recorded_folder)](const fs::path& path) {
    const fs::path folder = path.parent_path();
    const std::vector<DcpTask> plan = plan_dcp(entries, mesh);
    const auto reports = ranks.all_gather_text(write_dcp_file(folder, entries, plan, mesh.rank));
    if (mesh.rank == 0) finish_dcp(folder, entries, plan, reports, recorded);
  };
  return {relative_path / kDcpMetadataFile, bytes, write};
}

}  // namespace lerobot::checkpoint
