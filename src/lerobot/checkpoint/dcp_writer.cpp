#include "lerobot/checkpoint/dcp_writer.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/hub/remote_file.h"

namespace lerobot::checkpoint {
namespace {

using distributed::LocalTensor;
using distributed::Mesh;
using distributed::RowRange;
using serialization::TorchValue;

/// Of an item beside the tensor's bytes, about: what a file of torch.save is made of.
constexpr std::uint64_t kItemOverhead = 1536;

// --- who writes what ----------------------------------------------------------------------------

/// A task and the ranks that could do it, in ascending order.
struct Offer {
  DcpTask task;
  std::vector<std::int64_t> holders;
  std::uint64_t bytes = 0;
};

DcpBlock row_block(const std::vector<std::int64_t>& size, const RowRange& rows) {
  DcpBlock block{std::vector<std::int64_t>(size.size(), 0), size};
  if (size.empty()) return block;
  block.offsets[0] = rows.begin;
  block.sizes[0] = rows.count;
  return block;
}

class Offers {
 public:
  explicit Offers(const Mesh& mesh) : mesh_(mesh) {
    for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) everybody_.push_back(rank);
  }

  void add(std::size_t entry, const LocalDcpEntry& local) {
    const auto* tensor = std::get_if<LocalTensor>(&local.content);
    if (!tensor)
      offers_.push_back({{entry, std::nullopt}, everybody_, kItemOverhead});
    else if (!tensor->divided)
      add_chunk(entry, local, *tensor, row_block(tensor->global_size, whole(*tensor)), everybody_);
    else
      add_shards(entry, local, *tensor);
  }

  std::vector<Offer> take() { return std::move(offers_); }

 private:
  static RowRange whole(const LocalTensor& tensor) {
    return {0, tensor.global_size.empty() ? 1 : tensor.global_size[0]};
  }

  void add_chunk(std::size_t entry, const LocalDcpEntry& local, const LocalTensor& tensor,
                 DcpBlock block, const std::vector<std::int64_t>& holders) {
    const std::uint64_t bytes =
        dcp_block_bytes(block.sizes, tensor.tensor.scalar_type(), local.name) + kItemOverhead;
    Offer& offer = offers_.emplace_back();
    offer.task.entry = entry;
    offer.task.block = std::move(block);
    offer.holders = holders;
    offer.bytes = bytes;
  }

  void add_shards(std::size_t entry, const LocalDcpEntry& local, const LocalTensor& tensor) {
    bool has_empty = false;
    for (std::int64_t shard = 0; shard < mesh_.dp_shard; ++shard) {
      const RowRange rows = distributed::shard_rows(whole(tensor).count, mesh_.dp_shard, shard);
      // A scalar has no place for an empty chunk.
      if (rows.count == 0 && tensor.global_size.empty()) continue;
      std::vector<std::int64_t> holders;
      for (std::int64_t rank = shard; rank < mesh_.world_size(); rank += mesh_.dp_shard)
        holders.push_back(rank);
      if (rows.count == 0 && has_empty) {
        auto& all = offers_.back().holders;
        all.insert(all.end(), holders.begin(), holders.end());
        std::ranges::sort(all);
        continue;
      }
      has_empty = rows.count == 0;
      add_chunk(entry, local, tensor, row_block(tensor.global_size, rows), holders);
    }
  }

  const Mesh& mesh_;
  std::vector<std::int64_t> everybody_;
  std::vector<Offer> offers_;
};

// --- one rank's file ----------------------------------------------------------------------------

/// The tensor on the CPU with a storage that holds its elements and nothing else, which is what
/// ends up in the file. Shares the memory if it can.
at::Tensor compact(const at::Tensor& given) {
  const at::Tensor tensor = given.detach().contiguous().to(at::kCPU);
  if (tensor.storage().nbytes() == tensor.nbytes()) return tensor;
  const auto options = at::TensorOptions(tensor.scalar_type());
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), options);
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), [tensor](void*) {}, options);
}

TorchValue item_content(const LocalDcpEntry& entry, const DcpTask& task) {
  if (const auto* value = std::get_if<TorchValue>(&entry.content)) return *value;
  const auto& local = std::get<LocalTensor>(entry.content);
  check_internal(task.block && local.tensor.sizes() == task.block->sizes &&
                     (task.block->offsets.empty() || task.block->empty() ||
                      local.first_row == task.block->offsets[0]),
                 "a rank holds other rows than the plan gives it");
  return compact(local.tensor);
}

/// A rank's tasks in the order of its file.
std::vector<const DcpTask*> file_order(std::span<const DcpTask> plan, std::int64_t rank) {
  std::vector<const DcpTask*> tasks;
  for (const bool values : {true, false})
    for (const DcpTask& task : plan)
      if (task.rank == rank && values == !task.block) tasks.push_back(&task);
  return tasks;
}

Json place_of(const DcpTask& task) {
  return task.block ? Json(task.block->offsets) : Json(nullptr);
}

// --- `.metadata` --------------------------------------------------------------------------------

/// The items of one rank's file, in file_order().
std::vector<DcpItem> read_report(const std::string& text, std::span<const LocalDcpEntry> entries,
                                 const std::vector<const DcpTask*>& tasks, std::int64_t rank) {
  constexpr const char* kRemedy = "do all ranks run the same program with the same options?";
  const Json report = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!report.is_array())
    fail("rank {}'s report on its part of the checkpoint is no list: {}", rank, kRemedy);
  if (report.size() != tasks.size())
    fail("rank {} wrote {} items of the checkpoint, expected {}: {}", rank, report.size(),
         tasks.size(), kRemedy);
  std::vector<DcpItem> items;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Json& item = report[i];
    const std::string& name = entries[tasks[i]->entry].name;
    if (!item.is_array() || item.size() != 4 || item[0] != name || item[1] != place_of(*tasks[i]))
      fail("rank {} wrote {} where {} at {} was expected: {}", rank, item.dump(), name,
           place_of(*tasks[i]).dump(), kRemedy);
    if (item[2] != end || !item[3].is_number_unsigned())
      fail("rank {}'s report puts {} at byte {} with {} bytes, expected byte {}", rank, name,
           item[2].dump(), item[3].dump(), end);
    items.push_back({dcp_file_name(rank), end, item[3].get<std::uint64_t>()});
    end = checked_add(end, items.back().length, "length of a rank's file");
  }
  return items;
}

}  // namespace

std::string dcp_file_name(std::int64_t rank) { return fmt::format("__{}_0.distcp", rank); }

std::vector<DcpTask> plan_dcp(std::span<const LocalDcpEntry> entries, const Mesh& mesh) {
  Offers offered(mesh);
  for (std::size_t i = 0; i < entries.size(); ++i) offered.add(i, entries[i]);
  std::vector<Offer> offers = offered.take();
  std::vector<std::uint64_t> planned(static_cast<std::size_t>(mesh.world_size()), 0);
  // What has to be written by one rank comes first, so that the rest can even it out.
  for (const bool shared : {false, true}) {
    for (Offer& offer : offers) {
      if ((offer.holders.size() > 1) != shared) continue;
      offer.task.rank = *std::ranges::min_element(offer.holders, {}, [&](std::int64_t rank) {
        return planned[static_cast<std::size_t>(rank)];
      });
      planned[static_cast<std::size_t>(offer.task.rank)] += offer.bytes;
    }
  }
  std::vector<DcpTask> plan;
  for (Offer& offer : offers) plan.push_back(std::move(offer.task));
  return plan;
}

std::string write_dcp_file(const fs::path& folder, std::span<const LocalDcpEntry> entries,
                           std::span<const DcpTask> plan, std::int64_t rank) {
  const auto tasks = file_order(plan, rank);
  Json report = Json::array();
  if (tasks.empty()) return report.dump();
  FileWriter writer(folder / dcp_file_name(rank));
  const auto sink = [&](std::span<const std::uint8_t> bytes) { writer.write(bytes); };
  for (const DcpTask* task : tasks) {
    const LocalDcpEntry& entry = entries[task->entry];
    const std::uint64_t begin = writer.written();
    serialization::write_torch_archive(sink, "archive", item_content(entry, *task));
    report.push_back(Json::array({entry.name, place_of(*task), begin, writer.written() - begin}));
  }
  writer.commit();
  return report.dump();
}

DcpMetadata assemble_dcp_metadata(std::span<const LocalDcpEntry> entries,
                                  std::span<const DcpTask> plan,
                                  std::span<const std::string> reports) {
  std::vector<DcpItem> items(plan.size());
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto tasks = file_order(plan, static_cast<std::int64_t>(rank));
    const auto written =
        read_report(reports[rank], entries, tasks, static_cast<std::int64_t>(rank));
    for (std::size_t i = 0; i < tasks.size(); ++i)
      items[static_cast<std::size_t>(tasks[i] - plan.data())] = written[i];
  }
  DcpMetadata metadata;
  std::size_t next = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::variant<DcpTensor, DcpValue> content = DcpValue{};
    if (const auto* local = std::get_if<LocalTensor>(&entries[i].content))
      content = DcpTensor{local->tensor.scalar_type(), local->global_size, {}};
    for (; next < plan.size() && plan[next].entry == i; ++next) {
      check_internal(!items[next].file.empty(), "a rank's report is missing");
      if (auto* tensor = std::get_if<DcpTensor>(&content))
        tensor->chunks.push_back({*plan[next].block, items[next]});
      else
        content = DcpValue{items[next]};
    }
    if (const auto* tensor = std::get_if<DcpTensor>(&content))
      check_coverage(*tensor, entries[i].name);
    metadata.add({entries[i].name, entries[i].path, std::move(content)});
  }
  return metadata;
}

void finish_dcp(const fs::path& folder, std::span<const LocalDcpEntry> entries,
                std::span<const DcpTask> plan, std::span<const std::string> reports,
                const fs::path& recorded_folder) {
  write_dcp_metadata(folder, assemble_dcp_metadata(entries, plan, reports),
                     {recorded_folder, hub::random_uuid()});
}

}  // namespace lerobot::checkpoint
