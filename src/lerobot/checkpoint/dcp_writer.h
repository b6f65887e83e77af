// Saving a folder of torch.distributed.checkpoint by all ranks of a run together.
//
//   every rank   entries = model_entries(...) or optimizer_entries(...)   (dcp_entries.h)
//                plan    = plan_dcp(entries, mesh)
//                report  = write_dcp_file(folder, entries, plan, mesh.rank)
//   the main one, with all reports:   finish_dcp(folder, entries, plan, reports, name)
//
// Ranks need not talk for a plan: each makes the same one. The folder must be there and empty, and
// holds a save when its `.metadata` does, which is written last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lerobot/checkpoint/dcp_metadata.h"
#include "lerobot/distributed/mesh.h"
#include "lerobot/distributed/shard.h"
#include "lerobot/serialization/torch_archive.h"

namespace lerobot::checkpoint {

/// What one rank holds of an entry that is to be saved. All ranks have the same entries in the same
/// order; they differ in nothing but the rows of divided tensors.
struct LocalDcpEntry {
  std::string name;
  DcpPath path;
  std::variant<distributed::LocalTensor, serialization::TorchValue> content;
};

/// One item of one file.
struct DcpTask {
  std::size_t entry = 0;          // its number among the entries
  std::optional<DcpBlock> block;  // nothing for a value
  std::int64_t rank = 0;          // who writes it

  bool operator==(const DcpTask&) const = default;
};

/// Who writes what, in the order of the entries and of the chunks of each. A chunk that one rank
/// alone holds is written by it; a chunk that replicas share, a whole tensor or a value by the rank
/// with the fewest bytes so far among those that hold it. As in torch, the empty shards of a tensor
/// are one chunk, as they lie at the same place. A pure function of what all ranks know.
std::vector<DcpTask> plan_dcp(std::span<const LocalDcpEntry> entries,
                              const distributed::Mesh& mesh);

/// Name of the file of a rank.
std::string dcp_file_name(std::int64_t rank);

/// Writes FOLDER/__<rank>_0.distcp, values first and then tensors, to the byte as torch does, and
/// flushes it. Holds one tensor besides the entries at most, none if they are compact and on the
/// CPU. A rank without tasks writes no file. Returns what finish_dcp() needs to know, as text.
/// Throws Error naming the file (a full disk).
std::string write_dcp_file(const fs::path& folder, std::span<const LocalDcpEntry> entries,
                           std::span<const DcpTask> plan, std::int64_t rank);

/// The content of `.metadata` from the reports of all ranks, by rank. Throws Error naming the rank
/// and the entry when a report is not what the plan asked for.
DcpMetadata assemble_dcp_metadata(std::span<const LocalDcpEntry> entries,
                                  std::span<const DcpTask> plan,
                                  std::span<const std::string> reports);

/// Writes `.metadata`. `recorded_folder` is the name that the folder will have, for the record.
void finish_dcp(const fs::path& folder, std::span<const LocalDcpEntry> entries,
                std::span<const DcpTask> plan, std::span<const std::string> reports,
                const fs::path& recorded_folder);

}  // namespace lerobot::checkpoint
