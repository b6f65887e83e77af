#include "lerobot/distributed/sharded_model.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"
#include "lerobot/distributed/block_pool.h"
#include "lerobot/distributed/sharded_unit.h"
#include "lerobot/distributed/whole_model.h"
#include "lerobot/distributed/whole_parameters.h"
#include "lerobot/optim/optimizer.h"

namespace lerobot::distributed {
namespace {

class ShardedModel final : public TrainingModel, private UnitSchedule {
 public:
  ShardedModel(policy::Policy& policy, const World& world, const config::AcceleratorConfig& options,
               const ShardedPrecision& precision, WrapUnits units, at::Device device)
      : policy_(policy),
        world_(world),
        precision_(precision),
        reshard_after_forward_(options.fsdp.reshard_after_forward),
        pool_(device),
        whole_(std::move(units.whole), world.all()) {
    const ShardingContext context{.world = &world,
                                  .precision = precision,
                                  .cpu_offload = options.fsdp.cpu_offload,
                                  .pool = &pool_,
                                  .schedule = this};
    for (WrapUnit& unit : units.units)
      units_.push_back(std::make_unique<ShardedUnit>(units_.size(), std::move(unit), context));
    list_parameters();
  }

  const nn::NamedTensors& parameters() const override { return parameters_; }

  std::vector<LocalTensor> state() const override {
    std::vector<LocalTensor> state;
    for (const auto& [name, tensor] : policy_.module().state_dict()) {
      const auto found = by_name_.find(name);
      state.push_back(found == by_name_.end()
                          ? whole_tensor(name, tensor.detach())
                          : rows_of(name, *found->second, found->second->shard.detach()));
    }
    return state;
  }

  policy::TrainOutput compute_loss(dataset::Batch& batch, bool synchronise) override {
    const bool trains = c10::GradMode::is_enabled();
    synchronise_ = synchronise;
    calls_.clear();
    expected_ = trains ? &training_calls_ : &evaluation_calls_;
    for (const auto& unit : units_) unit->begin_pass();
    root().start_gather();
    if (!expected_->empty()) units_[expected_->front()]->start_gather();
    cast_inputs(batch);
    root().finish_gather();
    policy::TrainOutput output = policy_.compute_loss(batch);
    if (precision_.output_dtype) output.loss = output.loss.to(*precision_.output_dtype);
    *expected_ = calls_;
    if (trains)
      plan_backward();
    else
      for (const auto& unit : units_) unit->release();
    return output;
  }

  void backward(const at::Tensor& loss) override {
    loss.backward();
    // What is left: the root, and units of which a parameter or an input was not used.
    for (const auto& unit : units_) unit->release();
    std::fill(is_ready_.begin(), is_ready_.end(), true);
    reduce_ready_units();
    if (!synchronise_) return;
    for (const auto& unit : units_) unit->finish_reduce();
    whole_.average_gradients();
  }

  /// The averages stay in the shards: those of the micro-batches that follow are added to them.
  std::vector<LocalTensor> accumulated_gradients() override {
    for (const auto& unit : units_) {
      unit->start_reduce();
      unit->finish_reduce();
    }
    whole_.average_gradients();
    std::vector<LocalTensor> gradients;
    for (const auto& [name, parameter] : parameters_) {
      if (!parameter.grad().defined()) continue;
      const auto found = by_name_.find(name);
      gradients.push_back(found == by_name_.end()
                              ? whole_tensor(name, parameter.grad())
                              : rows_of(name, *found->second, parameter.grad()));
    }
    return gradients;
  }

  at::Tensor clip_grad_norm(double max_norm) override {
    const c10::NoGradGuard no_grad;
    at::Tensor squares = optim::grad_norm(shards_).square();
    world_.shards().all_reduce(squares, Reduction::kSum).wait();
    const at::Tensor whole = optim::grad_norm(whole_trainable_).square();
    const at::Tensor total = (squares + whole.to(squares.device())).sqrt();
    optim::clip_gradients(parameters_, total, max_norm);
    return total;
  }

 private:
  static LocalTensor rows_of(const std::string& name, const ShardedUnit::Parameter& parameter,
                             at::Tensor rows) {
    return {.name = name,
            .tensor = std::move(rows),
            .global_size = parameter.whole.sizes().vec(),
            .first_row = parameter.rows.begin,
            .divided = true};
  }

  ShardedUnit& root() { return *units_.front(); }

  void list_parameters() {
    std::map<std::string_view, at::Tensor> by_first_name;
    for (const auto& unit : units_)
      for (const ShardedUnit::Parameter& parameter : unit->parameters()) {
        for (const std::string& name : parameter.names) by_name_.emplace(name, &parameter);
        by_first_name.emplace(parameter.names.front(), parameter.shard);
      }
    for (const UnitParameter& parameter : whole_.parameters())
      by_first_name.emplace(parameter.names.front(), parameter.tensor);
    for (const auto& [name, tensor] : policy_.module().named_parameters()) {
      const auto found = by_first_name.find(name);
      if (found == by_first_name.end()) continue;  // another name of a tied parameter
      if (!found->second.requires_grad()) continue;
      parameters_.emplace_back(name, found->second);
      (by_name_.contains(name) ? shards_ : whole_trainable_).emplace_back(name, found->second);
    }
  }

  void cast_inputs(dataset::Batch& batch) const {
    if (!precision_.param_dtype || !precision_.cast_forward_inputs) return;
    for (auto& [name, tensor] : batch.tensors)
      if (tensor.is_floating_point()) tensor = tensor.to(*precision_.param_dtype);
  }

  /// The unit that is expected to be called after the calls so far; units_.size() when none is, or
  /// when this pass goes another way than the last one.
  std::size_t expected_next() const {
    const bool as_before = calls_.size() < expected_->size() && !calls_.empty() &&
                           (*expected_)[calls_.size() - 1] == calls_.back();
    return as_before ? (*expected_)[calls_.size()] : units_.size();
  }

  bool was_last_expected() const {
    return calls_.size() == expected_->size() && expected_->back() == calls_.back();
  }

  // --- UnitSchedule ---

  void before_forward(ShardedUnit& unit) override {
    calls_.push_back(unit.index());
    unit.finish_gather();
    if (const std::size_t next = expected_next(); next < units_.size())
      units_[next]->start_gather();
  }

  void after_forward(ShardedUnit& unit) override {
    if (c10::GradMode::is_enabled()) {
      if (!reshard_after_forward_) return;
      // The last unit of forward is the first one of backward.
      if (was_last_expected()) return;
    }
    const std::size_t next = expected_next();
    if (next < units_.size() && units_[next].get() == &unit) return;
    unit.release();
  }

  void before_backward(ShardedUnit& unit) override {
    unit.finish_gather();
    const auto here = std::find(backward_order_.begin(), backward_order_.end(), unit.index());
    if (here == backward_order_.end()) return;
    for (auto next = here + 1; next != backward_order_.end(); ++next) {
      if (is_ready_[*next]) continue;
      units_[*next]->start_gather();
      return;
    }
  }

  void after_backward(ShardedUnit& unit) override {
    if (&unit == &root()) return;  // other units may still run
    unit.release();
    is_ready_[unit.index()] = true;
    reduce_ready_units();
  }

  // --- the order of backward ---

  /// Units in the reversed order of their last calls, then those without a call, the root last. All
  /// ranks reduce in this order.
  void plan_backward() {
    backward_order_.clear();
    std::vector<bool> seen(units_.size(), false);
    seen[0] = true;
    const auto add = [&](std::size_t unit) {
      if (!seen[unit]) backward_order_.push_back(unit);
      seen[unit] = true;
    };
    std::for_each(calls_.rbegin(), calls_.rend(), add);
    const std::size_t called = backward_order_.size();
    for (std::size_t unit = 1; unit < units_.size(); ++unit) add(unit);
    backward_order_.push_back(0);
    is_ready_.assign(units_.size(), false);
    for (std::size_t i = called; i + 1 < backward_order_.size(); ++i)
      is_ready_[backward_order_[i]] = true;
    reduced_ = 0;
    reducing_ = nullptr;
  }

  void reduce_ready_units() {
    for (; reduced_ < backward_order_.size(); ++reduced_) {
      ShardedUnit& unit = *units_[backward_order_[reduced_]];
      if (!unit.is_trained()) continue;
      if (!is_ready_[unit.index()]) return;
      if (!synchronise_) {
        unit.keep_gradients();
        continue;
      }
      // One at a time: their buffers are as large as a unit.
      if (reducing_ != nullptr) reducing_->continue_reduce();
      unit.start_reduce();
      reducing_ = &unit;
    }
  }

  policy::Policy& policy_;
  const World& world_;
  ShardedPrecision precision_;
  bool reshard_after_forward_;
  BlockPool pool_;
  WholeParameters whole_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;  // the root first
  std::map<std::string, const ShardedUnit::Parameter*, std::less<>> by_name_;
  nn::NamedTensors parameters_;
  nn::NamedTensors shards_;
  nn::NamedTensors whole_trainable_;

  bool synchronise_ = true;
  std::vector<std::size_t> calls_;  // units of this pass, in the order of their calls
  std::vector<std::size_t> training_calls_;
  std::vector<std::size_t> evaluation_calls_;
  std::vector<std::size_t>* expected_ = &training_calls_;
  std::vector<std::size_t> backward_order_;
  std::vector<bool> is_ready_;
  std::size_t reduced_ = 0;          // units of backward_order_ whose reduction has begun
  ShardedUnit* reducing_ = nullptr;  // the last of them
};

}  // namespace

std::unique_ptr<TrainingModel> make_sharded_model(policy::Policy& policy, const World& world,
                                                  const config::AcceleratorConfig& options) {
  const ShardedPrecision precision = resolve_precision(options);
  WrapUnits units = choose_wrap_units(policy.module(), policy.wrap_modules(), options.fsdp,
                                      precision.param_dtype.has_value());
  const auto parameters = policy.module().named_parameters();
  check_internal(!parameters.empty(), "a policy without parameters");
  return std::make_unique<ShardedModel>(policy, world, options, precision, std::move(units),
                                        parameters.front().second.device());
}

}  // namespace lerobot::distributed
