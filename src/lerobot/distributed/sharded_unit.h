// One wrap unit of sharded training: its rows of every parameter, the gathered whole while a
// forward or backward needs it, and the reduction of its gradients.
//
// The module's parameter tensors stay the same objects for ever; between uses their storage is
// empty. Autograd's saved tensors share that storage, so that filling it again before backward
// gives them back their values. It is filled past autograd: no version counter moves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lerobot/distributed/block_pool.h"
#include "lerobot/distributed/communicator.h"
#include "lerobot/distributed/shard.h"
#include "lerobot/distributed/sharded_precision.h"
#include "lerobot/distributed/world.h"
#include "lerobot/distributed/wrap_units.h"
#include "lerobot/nn/module.h"

namespace lerobot::distributed {

class ShardedUnit;

/// Who decides when units are gathered, freed and reduced.
class UnitSchedule {
 public:
  virtual ~UnitSchedule() = default;
  virtual void before_forward(ShardedUnit& unit) = 0;
  virtual void after_forward(ShardedUnit& unit) = 0;
  /// The gradient of one of its outputs is there.
  virtual void before_backward(ShardedUnit& unit) = 0;
  /// All its gradients are there, and nothing in backward needs its parameters any more.
  virtual void after_backward(ShardedUnit& unit) = 0;
};

/// What all units of a model share.
struct ShardingContext {
  const World* world = nullptr;
  ShardedPrecision precision;
  /// Parameters, gradients and with them the optimizer's state stay in host memory.
  bool cpu_offload = false;
  BlockPool* pool = nullptr;
  UnitSchedule* schedule = nullptr;
};

class ShardedUnit final : public nn::ForwardHooks {
 public:
  /// Keeps this rank's rows of the unit's parameters and empties the module's. Hooks itself around
  /// the module's forward unless it is the root.
  ShardedUnit(std::size_t index, WrapUnit unit, const ShardingContext& context);
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;
  ~ShardedUnit() override;

  /// Its place in the list of units.
  std::size_t index() const { return index_; }

  /// One parameter of the unit.
  struct Parameter {
    std::vector<std::string> names;
    at::Tensor whole;  // the module's, empty between uses
    at::Tensor shard;  // this rank's rows, a leaf that the optimizer updates
    RowRange rows;
    bool trainable = false;
    std::int64_t chunk_rows = 0;       // rows of a full shard
    std::int64_t row_elements = 0;     // elements of a row
    std::int64_t gather_offset = 0;    // bytes, in what one rank contributes
    std::int64_t whole_offset = 0;     // bytes, in the block of whole parameters
    std::int64_t gradient_offset = 0;  // elements, in one rank's part of the reduction
    at::Tensor accumulated;            // gradients of micro-batches that were not synchronised

    std::int64_t chunk_elements() const { return chunk_rows * row_elements; }
  };
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Whether any of them is trained. A unit of a frozen policy has no gradients to reduce.
  bool is_trained() const { return trainable_ > 0; }

  // --- whole parameters
  // ---------------------------------------------------------------------------

  /// Starts the all-gather unless the parameters are whole or on their way.
  void start_gather();
  /// Returns when the module's parameters have their values.
  void finish_gather();
  bool is_whole() const { return block_.defined(); }
  /// Empties the module's parameters, and ends a gather that nothing has waited for.
  void release();

  // --- gradients
  // ----------------------------------------------------------------------------------

  /// Before a forward pass: forgets what the last one has counted.
  void begin_pass();
  /// Keeps the gradients of this micro-batch to this rank.
  void keep_gradients();
  /// Starts averaging the gradients within the group of shards; the module's are dropped.
  void start_reduce();
  /// Waits for that, and starts averaging over the replicas.
  void continue_reduce();
  /// Waits for everything; shards have gradients then. A parameter without one on every rank has
  /// none afterwards.
  void finish_reduce();

  // --- nn::ForwardHooks
  // ---------------------------------------------------------------------------

  void before_forward() override;
  at::Tensor input(const at::Tensor& argument) override;
  at::Tensor output(const at::Tensor& result) override;
  void after_forward() override;

 private:
  class GradientArrived;
  class Notice;

  void describe(UnitParameter parameter);
  void lay_out();
  void take_shards();
  void empty_module();
  at::ScalarType shard_dtype(const Parameter& parameter) const;
  at::ScalarType gather_dtype(const Parameter& parameter) const;
  at::Tensor gather_input();
  void wait_for_gather();
  void gradient_arrived();
  void input_gradient_arrived();
  void check_done();
  void fill_reduce_input(const at::Tensor& input);

  std::size_t index_;
  std::string name_;  // "" for the root
  nn::Module* module_;
  ShardingContext context_;
  at::Device device_;
  std::vector<Parameter> parameters_;
  std::int64_t trainable_ = 0;
  bool has_frozen_ = false;

  std::int64_t gather_bytes_ = 0;  // of one rank
  std::int64_t whole_bytes_ = 0;
  at::Tensor shard_bytes_;  // all shards, one behind the other
  bool gather_is_direct_ = false;
  Pending gather_;
  at::Tensor gather_input_;
  at::Tensor gathered_;
  at::Tensor block_;  // whole parameters, while they are whole

  std::vector<std::pair<at::Tensor, at::Tensor>> inputs_;  // of the call under way
  std::int64_t arrived_ = 0;                               // gradients of this pass
  std::int64_t inputs_without_gradient_ = 0;
  bool is_done_ = false;

  at::ScalarType reduce_dtype_ = at::kFloat;
  std::int64_t gradient_elements_ = 0;  // of one rank's part, without the flags behind it
  Pending reduce_;
  at::Tensor reduce_block_;
  at::Tensor reduced_;
};

}  // namespace lerobot::distributed
