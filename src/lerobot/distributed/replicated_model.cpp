#include "lerobot/distributed/replicated_model.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/distributed/whole_model.h"
#include "lerobot/optim/optimizer.h"

namespace lerobot::distributed {
namespace {

using GroupPointer = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Bytes of the parameters that are sent together at the start.
constexpr std::size_t kBroadcastBytes = 250 << 20;

/// torch tells every rank of a model without unused parameters that it has looked for them: with
/// the default options that is no warning.
class UnusedParametersNotice final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("did not find any unused parameters") == std::string::npos)
      log::warning("{}", warning.msg());
    else
      log::info(
          "Every parameter has a gradient: --accelerator.ddp.find_unused_parameters=false would "
          "save a search in every step");
  }
};

/// torch's reducer averages wrong gradients when micro-batches that it does not average come
/// between those of a static graph. Looking for unused parameters at every update gives the same as
/// what a static graph remembers of its first pass.
config::DdpConfig usable_options(const config::AcceleratorConfig& options) {
  config::DdpConfig usable = options.ddp;
  if (!usable.static_graph || options.gradient_accumulation.steps == 1) return usable;
  log::info("--accelerator.ddp.static_graph=true has no effect with gradient accumulation");
  usable.static_graph = false;
  usable.find_unused_parameters = true;
  return usable;
}

class ReplicatedModel final : public TrainingModel {
 public:
  ReplicatedModel(policy::Policy& policy, const World& world,
                  const config::AcceleratorConfig& options)
      : policy_(policy),
        ranks_(world.replicas()),
        clock_(world.clock()),
        options_(usable_options(options)),
        parameters_(policy.module().trainable_parameters()),
        running_buffers_(policy.module().running_buffers()) {
    std::unordered_map<std::size_t, std::string> names;
    for (const auto& [name, parameter] : parameters_) {
      names.emplace(trained_.size(), name);
      trained_.push_back(parameter);
    }
    naming_the_rank("start of DDP", [&] {
      const auto group = GroupPointer::unsafe_reclaim_from_nonowning(ranks_.process_group());
      start_from_rank_0(group);
      if (!trained_.empty()) build_reducer(group, std::move(names));
    });
  }

  const nn::NamedTensors& parameters() const override { return parameters_; }
  std::vector<LocalTensor> state() const override { return whole_state(policy_.module()); }

  policy::TrainOutput compute_loss(dataset::Batch& batch, bool synchronise) override {
    const bool trains = c10::GradMode::is_enabled() && reducer_ != nullptr;
    synchronises_ = trains && synchronise;
    naming_the_rank("building of DDP's buckets", [&] {
      if (synchronises_) reducer_->prepare_for_forward();
      if (synchronises_) reducer_->rebuild_buckets();
    });
    return policy_.compute_loss(batch);
  }

  void backward(const at::Tensor& loss) override {
    if (!synchronises_) return loss.backward();
    naming_the_rank("average of gradients", [&] {
      // What the loss does not depend on counts as done, lest everybody waits for its gradient.
      const bool searches = options_.find_unused_parameters && !options_.static_graph;
      const c10::WarningUtils::WarningHandlerGuard guard(&notice_);
      std::optional<StepClock::Communication> waiting;
      mark_end_of_computation(loss, waiting);
      reducer_->prepare_for_backward(searches ? std::vector<at::Tensor>{loss}
                                              : std::vector<at::Tensor>{});
      loss.backward();
      // The first pass of a static graph only counts how often each parameter is used.
      if (options_.static_graph && !std::exchange(has_seen_graph_, true))
        reducer_->delay_all_reduce();
      share_running_buffers();
    });
  }

  std::vector<LocalTensor> accumulated_gradients() override {
    const c10::NoGradGuard no_grad;
    // Of every parameter, whether any rank has a gradient.
    const at::Tensor has = at::zeros({static_cast<std::int64_t>(parameters_.size())}, at::kInt);
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      has.mutable_data_ptr<std::int32_t>()[i] = parameters_[i].second.grad().defined() ? 1 : 0;
    ranks_.all_reduce(has, Reduction::kMax).wait();
    std::vector<LocalTensor> gradients;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (has.const_data_ptr<std::int32_t>()[i] == 0) continue;
      const auto& [name, parameter] = parameters_[i];
      const at::Tensor gradient = parameter.grad().defined()
                                      ? parameter.grad().clone(at::MemoryFormat::Contiguous)
                                      : at::zeros_like(parameter, at::MemoryFormat::Contiguous);
      ranks_.all_reduce(gradient, Reduction::kAverage).wait();
      gradients.push_back(whole_tensor(name, gradient));
    }
    return gradients;
  }

  /// The averaged gradients are the same on every rank, and so is their norm.
  at::Tensor clip_grad_norm(double max_norm) override {
    return optim::clip_grad_norm(parameters_, max_norm);
  }

 private:
  /// What torch throws out of a broken collective becomes the Error that says whose fault it is.
  template <class F>
  void naming_the_rank(const char* operation, const F& work) {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const InternalError&) {
      throw;
    } catch (const std::exception& error) {
      ranks_.fail_operation(operation, error);
    }
  }

  /// The reducer waits for its averages behind the computation, in a callback that it adds in the
  /// middle of it: one that is added before begins to count the wait, whose end is backward's.
  void mark_end_of_computation(const at::Tensor& loss,
                               std::optional<StepClock::Communication>& waiting) {
    loss.register_hook([this, &waiting](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [this, &waiting] { waiting.emplace(&clock_); });
    });
  }

  void start_from_rank_0(const GroupPointer& group) {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : policy_.module().state_dict())
      tensors.push_back(tensor.detach());
    c10d::verify_params_across_processes(group, tensors, {});
    c10d::broadcast_coalesced(group, tensors, kBroadcastBytes, 0);
  }

  /// Gives every rank what rank 0's batches made of its running statistics. torch does so before
  /// the next forward; here held-out losses see the same model on all ranks, too.
  void share_running_buffers() {
    if (running_buffers_.empty()) return;
    const c10::NoGradGuard no_grad;
    c10d::broadcast_coalesced(GroupPointer::unsafe_reclaim_from_nonowning(ranks_.process_group()),
                              running_buffers_, kBroadcastBytes, 0);
  }

  void build_reducer(const GroupPointer& group,
                     std::unordered_map<std::size_t, std::string> names) {
    // Buckets that will be built anew need no division before.
    std::vector<std::size_t> limits = {c10d::kDefaultFirstBucketBytes,
                                       c10d::kDefaultBucketBytesCap};
    if (!options_.find_unused_parameters || options_.static_graph)
      limits = {static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())};
    const std::vector<bool> is_sparse(trained_.size(), false);
    auto buckets =
        std::get<0>(c10d::compute_bucket_assignment_by_size(trained_, limits, is_sparse));
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_unique<c10d::Reducer>(
        trained_, std::move(buckets), group, is_sparse, c10d::kDefaultBucketBytesCap,
        options_.find_unused_parameters, options_.gradient_as_bucket_view, std::move(names),
        c10d::kDefaultFirstBucketBytes, /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<std::int64_t>());
    if (options_.static_graph) reducer_->set_static_graph();
  }

  policy::Policy& policy_;
  Communicator ranks_;
  StepClock& clock_;
  config::DdpConfig options_;
  nn::NamedTensors parameters_;
  std::vector<at::Tensor> trained_;
  std::vector<at::Tensor> running_buffers_;  // that forward changes
  std::unique_ptr<c10d::Reducer> reducer_;   // null when nothing is trained
  UnusedParametersNotice notice_;
  bool synchronises_ = false;
  bool has_seen_graph_ = false;
};

}  // namespace

std::unique_ptr<TrainingModel> make_replicated_model(policy::Policy& policy, const World& world,
                                                     const config::AcceleratorConfig& options) {
  return std::make_unique<ReplicatedModel>(policy, world, options);
}

}  // namespace lerobot::distributed
