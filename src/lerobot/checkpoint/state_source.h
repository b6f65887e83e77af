// Saved tensors by name and by rows, whatever wrote them: one process or many, into one file or
// into shards. What a resume reads, so that each rank touches its own part alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/base/json.h"
#include "lerobot/checkpoint/dcp_reader.h"

namespace lerobot::checkpoint {

/// Thread-safe.
class StateSource {
 public:
  virtual ~StateSource() = default;

  /// The file or folder, for messages.
  virtual const std::string& where() const = 0;
  virtual const std::vector<std::string>& names() const = 0;
  virtual bool contains(std::string_view name) const = 0;
  /// Of the whole tensor. These and the readers throw Error naming where() and the tensor when it
  /// is absent.
  virtual std::vector<std::int64_t> shape(std::string_view name) const = 0;
  virtual at::ScalarType dtype(std::string_view name) const = 0;
  /// Reads the rows from `first_row` on into `target`, all of whose dimensions but the first are
  /// the saved tensor's; it may be of another dtype or device. Touches those rows alone in a file,
  /// and in a folder the chunks that they lie in, one at a time. Throws Error for damaged files.
  virtual void read(std::string_view name, std::int64_t first_row,
                    const at::Tensor& target) const = 0;

  /// A copy of some rows, or of all, on the CPU.
  at::Tensor rows(std::string_view name, std::int64_t first_row, std::int64_t count) const;
  at::Tensor tensor(std::string_view name) const;
};

/// The weights in a pretrained_model folder: its `file` (kModelFile, or kAdapterModelFile of an
/// adapter), otherwise its shards. Names are those of a file of weights. Throws Error when there
/// are none.
std::unique_ptr<StateSource> open_model(const fs::path& pretrained_model, const char* file);
/// A file of tensors.
std::unique_ptr<StateSource> open_tensor_file(const fs::path& file);
/// A folder pytorch_model_fsdp_0: the tensors of its dictionary `model`, and others under their
/// full names.
std::unique_ptr<StateSource> open_sharded_model(const fs::path& folder);

/// What was saved of an optimizer.
struct OptimizerSource {
  /// Under "<name of the parameter>.<key>".
  std::unique_ptr<StateSource> state;
  /// As Optimizer::param_groups() gives them.
  Json groups;
  /// Where the groups were found, for messages.
  std::string groups_where;
};

/// The optimizer in a training_state folder: the shards in optimizer_0, otherwise
/// optimizer_state.safetensors and optimizer_param_groups.json. `parameters` are the names of this
/// run's parameters by group: the files number the parameters in this order, the shards name them.
/// Throws Error when neither is there, and for groups that hold other parameters than this run's.
OptimizerSource open_optimizer(const fs::path& training_state,
                               std::span<const std::vector<std::string>> parameters);

/// Throws Error with an explanation for a checkpoint of a sharded run whose optimizer state is one
/// file, as LeRobot 0.6 and earlier wrote: it can't be resumed.
void require_sharded_optimizer(const fs::path& training_state);

}  // namespace lerobot::checkpoint
