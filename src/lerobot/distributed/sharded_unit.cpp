#include "lerobot/distributed/sharded_unit.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

/// Of parameters in flat buffers: a cache line, and enough for any element type.
constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Part of a buffer of bytes as elements of `dtype`.
at::Tensor elements(const at::Tensor& bytes, std::int64_t offset, std::int64_t count,
                    at::ScalarType dtype) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  return bytes.narrow(0, offset, count * size).view(dtype);
}

void point_storage_at(const at::Tensor& tensor, void* data, std::int64_t bytes) {
  const c10::Storage& storage = tensor.storage();
  storage.set_data_ptr_noswap(at::DataPtr(data, tensor.device()));
  storage.set_nbytes(static_cast<std::size_t>(bytes));
}

/// Lays one parameter's gradient into its columns of `input` (shards, elements of one rank's part),
/// with zeros where a shard is short.
void fill_columns(const at::Tensor& columns, const at::Tensor& gradient, std::int64_t rows) {
  const std::int64_t shards = columns.size(0);
  if (!gradient.defined()) {
    columns.zero_();
    return;
  }
  if (gradient.numel() == columns.numel()) {
    columns.copy_(gradient.reshape(columns.sizes()));
    return;
  }
  const at::Tensor flat = gradient.reshape({-1});
  const std::int64_t row_elements = rows == 0 ? 0 : flat.numel() / rows;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    const RowRange range = shard_rows(rows, shards, shard);
    const std::int64_t count = range.count * row_elements;
    const at::Tensor part = columns.select(0, shard);
    part.narrow(0, 0, count).copy_(flat.narrow(0, range.begin * row_elements, count));
    part.narrow(0, count, part.numel() - count).zero_();
  }
}

}  // namespace

/// Called by autograd after a parameter's gradient has been added up.
class ShardedUnit::GradientArrived final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientArrived(ShardedUnit* unit) : unit_(unit) {}
  void operator()(const torch::autograd::Variable&) override { unit_->gradient_arrived(); }

 private:
  ShardedUnit* unit_;
};

/// Identity whose backward tells the unit that the gradient of its output is there. A node of its
/// own rather than a hook on the tensor: when a view is changed in place, autograd leaves its node,
/// and the hooks with it, out. The output shares the memory and is no view, so that it can be
/// changed in place wherever the tensor itself could.
class ShardedUnit::Notice final : public torch::autograd::Function<ShardedUnit::Notice> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tensor,
                            ShardedUnit* unit, bool is_output) {
    context->saved_data[kUnit] = reinterpret_cast<std::int64_t>(unit);
    context->saved_data[kIsOutput] = is_output;
    return tensor.variable_data();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* unit = reinterpret_cast<ShardedUnit*>(context->saved_data[kUnit].toInt());
    if (context->saved_data[kIsOutput].toBool())
      unit->context_.schedule->before_backward(*unit);
    else
      unit->input_gradient_arrived();
    return {gradients[0], at::Tensor(), at::Tensor()};
  }

 private:
  static constexpr const char* kUnit = "unit";
  static constexpr const char* kIsOutput = "is_output";
};

ShardedUnit::ShardedUnit(std::size_t index, WrapUnit unit, const ShardingContext& context)
    : index_(index),
      name_(std::move(unit.name)),
      module_(unit.module),
      context_(context),
      device_(context.pool->device()) {
  const c10::NoGradGuard no_grad;
  for (UnitParameter& parameter : unit.parameters) describe(std::move(parameter));
  lay_out();
  take_shards();
  empty_module();
  if (!name_.empty()) module_->set_forward_hooks(this);
}

ShardedUnit::~ShardedUnit() {
  if (!name_.empty()) module_->set_forward_hooks(nullptr);
  for (const Parameter& parameter : parameters_)
    if (parameter.trainable)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.whole, nullptr);
}

// --- layout --------------------------------------------------------------------------------------

void ShardedUnit::describe(UnitParameter source) {
  const Mesh& mesh = context_.world->mesh();
  Parameter parameter;
  parameter.names = std::move(source.names);
  parameter.whole = std::move(source.tensor);
  const std::int64_t rows = parameter.whole.size(0);
  parameter.rows = shard_rows(rows, mesh.dp_shard, mesh.shard());
  parameter.chunk_rows = rows_per_shard(rows, mesh.dp_shard);
  parameter.row_elements = rows == 0 ? 0 : parameter.whole.numel() / rows;
  parameter.trainable = parameter.whole.requires_grad();
  if (parameter.trainable)
    ++trainable_;
  else
    has_frozen_ = true;
  parameters_.push_back(std::move(parameter));
}

at::ScalarType ShardedUnit::shard_dtype(const Parameter& parameter) const {
  const at::ScalarType own = parameter.whole.scalar_type();
  // The optimizer works on a float32 copy of what low precision computes with.
  const bool raised = context_.precision.param_dtype && parameter.trainable;
  return raised && c10::isFloatingType(own) ? at::kFloat : own;
}

at::ScalarType ShardedUnit::gather_dtype(const Parameter& parameter) const {
  const at::ScalarType own = parameter.whole.scalar_type();
  const auto& wanted = context_.precision.param_dtype;
  return wanted && c10::isFloatingType(own) ? *wanted : own;
}

void ShardedUnit::lay_out() {
  const std::int64_t shards = context_.world->mesh().dp_shard;
  for (Parameter& parameter : parameters_) {
    const auto size = static_cast<std::int64_t>(c10::elementSize(gather_dtype(parameter)));
    const std::int64_t chunk_bytes = parameter.chunk_elements() * size;
    parameter.gather_offset = gather_bytes_;
    gather_bytes_ += aligned(chunk_bytes);
    parameter.whole_offset = whole_bytes_;
    whole_bytes_ += aligned(chunk_bytes * shards);
    if (!parameter.trainable) continue;
    parameter.gradient_offset = gradient_elements_;
    gradient_elements_ += parameter.chunk_elements();
    reduce_dtype_ = context_.precision.reduce_dtype.value_or(gather_dtype(parameter));
  }
}

void ShardedUnit::take_shards() {
  const at::Device home = context_.cpu_offload ? at::Device(at::kCPU) : device_;
  std::int64_t bytes = 0;
  std::vector<std::int64_t> offsets;
  gather_is_direct_ = home == device_;
  for (const Parameter& parameter : parameters_) {
    const at::ScalarType dtype = shard_dtype(parameter);
    gather_is_direct_ &= dtype == gather_dtype(parameter);
    offsets.push_back(bytes);
    bytes +=
        aligned(parameter.chunk_elements() * static_cast<std::int64_t>(c10::elementSize(dtype)));
  }
  const bool pinned = home.is_cpu() && device_.is_cuda();
  shard_bytes_ =
      at::zeros({bytes}, at::TensorOptions(at::kByte).device(home).pinned_memory(pinned));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    const at::Tensor rows =
        parameter.whole.detach().narrow(0, parameter.rows.begin, parameter.rows.count);
    // A leaf of its own: neither a view nor a sharer of version counters.
    parameter.shard = elements(shard_bytes_, offsets[i], rows.numel(), shard_dtype(parameter))
                          .view(rows.sizes())
                          .variable_data();
    parameter.shard.copy_(rows);
    parameter.shard.set_requires_grad(parameter.trainable);
  }
}

void ShardedUnit::empty_module() {
  for (Parameter& parameter : parameters_) {
    const auto options = at::TensorOptions(gather_dtype(parameter)).device(device_);
    parameter.whole.set_data(at::empty(parameter.whole.sizes(), options));
    point_storage_at(parameter.whole, nullptr, 0);
    if (parameter.trainable)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.whole,
                                                     std::make_unique<GradientArrived>(this));
  }
}

// --- whole parameters ----------------------------------------------------------------------------

at::Tensor ShardedUnit::gather_input() {
  if (gather_is_direct_) return shard_bytes_;
  gather_input_ = context_.pool->take(gather_bytes_);
  for (const Parameter& parameter : parameters_)
    elements(gather_input_, parameter.gather_offset, parameter.shard.numel(),
             gather_dtype(parameter))
        .copy_(parameter.shard.detach().view({-1}), /*non_blocking=*/true);
  return gather_input_.narrow(0, 0, gather_bytes_);
}

void ShardedUnit::start_gather() {
  if (is_whole() || gather_ || parameters_.empty()) return;
  const c10::NoGradGuard no_grad;
  const Communicator& shards = context_.world->shards();
  const at::Tensor input = gather_input();
  gathered_ = context_.pool->take(shards.size() * gather_bytes_);
  gather_ = shards.all_gather(gathered_.narrow(0, 0, shards.size() * gather_bytes_), input);
}

void ShardedUnit::wait_for_gather() {
  gather_.wait();
  gather_ = Pending();
  if (gather_input_.defined()) context_.pool->give(std::exchange(gather_input_, {}));
}

void ShardedUnit::finish_gather() {
  if (is_whole() || parameters_.empty()) return;
  start_gather();
  const c10::NoGradGuard no_grad;
  wait_for_gather();
  // Ranks lie one behind the other; a parameter's rows belong together.
  const std::int64_t shards = context_.world->shards().size();
  block_ = context_.pool->take(whole_bytes_);
  const at::Tensor by_rank =
      gathered_.narrow(0, 0, shards * gather_bytes_).view({shards, gather_bytes_});
  for (const Parameter& parameter : parameters_) {
    const auto size = static_cast<std::int64_t>(parameter.whole.element_size());
    const std::int64_t chunk_bytes = parameter.chunk_elements() * size;
    if (chunk_bytes == 0) continue;
    block_.narrow(0, parameter.whole_offset, shards * chunk_bytes)
        .view({shards, chunk_bytes})
        .copy_(by_rank.narrow(1, parameter.gather_offset, chunk_bytes));
    point_storage_at(parameter.whole,
                     static_cast<char*>(block_.mutable_data_ptr()) + parameter.whole_offset,
                     parameter.whole.numel() * size);
  }
  context_.pool->give(std::exchange(gathered_, {}));
}

void ShardedUnit::release() {
  if (gather_) {
    wait_for_gather();
    context_.pool->give(std::exchange(gathered_, {}));
  }
  if (!is_whole()) return;
  for (const Parameter& parameter : parameters_) point_storage_at(parameter.whole, nullptr, 0);
  context_.pool->give(std::exchange(block_, {}));
}

// --- around the module's forward -----------------------------------------------------------------

void ShardedUnit::begin_pass() {
  arrived_ = 0;
  inputs_without_gradient_ = 0;
  is_done_ = false;
}

void ShardedUnit::before_forward() {
  inputs_.clear();
  context_.schedule->before_forward(*this);
}

at::Tensor ShardedUnit::input(const at::Tensor& argument) {
  for (const auto& [seen, result] : inputs_)
    if (seen.is_same(argument)) return result;
  at::Tensor result = argument;
  const ShardedPrecision& precision = context_.precision;
  if (precision.param_dtype && precision.cast_forward_inputs && argument.is_floating_point())
    result = result.to(*precision.param_dtype);
  // Frozen parameters have no gradients that could say when backward is through with them: the
  // gradients of the unit's inputs do.
  if (has_frozen_ && c10::GradMode::is_enabled() && result.requires_grad()) {
    result = Notice::apply(result, this, /*is_output=*/false);
    ++inputs_without_gradient_;
  }
  inputs_.emplace_back(argument, result);
  return result;
}

at::Tensor ShardedUnit::output(const at::Tensor& result) {
  at::Tensor output = result;
  const auto& dtype = context_.precision.output_dtype;
  if (dtype && output.is_floating_point()) output = output.to(*dtype);
  if (c10::GradMode::is_enabled() && output.requires_grad())
    output = Notice::apply(output, this, /*is_output=*/true);
  return output;
}

void ShardedUnit::after_forward() {
  inputs_.clear();
  context_.schedule->after_forward(*this);
}

void ShardedUnit::gradient_arrived() {
  ++arrived_;
  check_done();
}

void ShardedUnit::input_gradient_arrived() {
  --inputs_without_gradient_;
  check_done();
}

void ShardedUnit::check_done() {
  if (is_done_ || arrived_ < trainable_ || inputs_without_gradient_ > 0) return;
  is_done_ = true;
  context_.schedule->after_backward(*this);
}

// --- gradients -----------------------------------------------------------------------------------

void ShardedUnit::keep_gradients() {
  const c10::NoGradGuard no_grad;
  for (Parameter& parameter : parameters_) {
    const at::Tensor gradient = parameter.whole.grad();
    // In the type of the reduction autograd itself adds the next one to it.
    if (!gradient.defined() || gradient.scalar_type() == reduce_dtype_) continue;
    parameter.accumulated = parameter.accumulated.defined() ? parameter.accumulated.add_(gradient)
                                                            : gradient.to(reduce_dtype_);
    parameter.whole.mutable_grad().reset();
  }
}

void ShardedUnit::fill_reduce_input(const at::Tensor& input) {
  // Behind the gradients travels, for each parameter, whether this rank had one.
  const at::Tensor flags = at::zeros({trainable_});
  float* flag = flags.mutable_data_ptr<float>();
  for (Parameter& parameter : parameters_) {
    if (!parameter.trainable) continue;
    at::Tensor gradient = parameter.whole.grad();
    if (parameter.accumulated.defined())
      gradient = gradient.defined() ? parameter.accumulated.add_(gradient) : parameter.accumulated;
    *flag++ = gradient.defined() ? 1.0F : 0.0F;
    fill_columns(input.narrow(1, parameter.gradient_offset, parameter.chunk_elements()), gradient,
                 parameter.whole.size(0));
    parameter.whole.mutable_grad().reset();
    parameter.accumulated.reset();
  }
  input.narrow(1, gradient_elements_, trainable_).copy_(flags.expand({input.size(0), trainable_}));
}

void ShardedUnit::start_reduce() {
  if (trainable_ == 0) return;
  const c10::NoGradGuard no_grad;
  const Communicator& shards = context_.world->shards();
  const std::int64_t part = gradient_elements_ + trainable_;
  const std::int64_t count = shards.size() * part;
  reduce_block_ =
      context_.pool->take(count * static_cast<std::int64_t>(c10::elementSize(reduce_dtype_)));
  const at::Tensor input = elements(reduce_block_, 0, count, reduce_dtype_);
  fill_reduce_input(input.view({shards.size(), part}));
  const bool in_use = std::any_of(parameters_.begin(), parameters_.end(),
                                  [](const auto& p) { return p.shard.grad().defined(); });
  if (!reduced_.defined() || in_use) reduced_ = at::empty({part}, input.options());
  reduce_ = shards.reduce_scatter(reduced_, input, Reduction::kAverage);
}

void ShardedUnit::continue_reduce() {
  if (!reduce_ || !reduce_block_.defined()) return;
  reduce_.wait();
  reduce_ = Pending();
  context_.pool->give(std::exchange(reduce_block_, {}));
  const Communicator& replicas = context_.world->replicas();
  if (replicas.size() > 1) reduce_ = replicas.all_reduce(reduced_, Reduction::kAverage);
}

void ShardedUnit::finish_reduce() {
  if (trainable_ == 0) return;
  const c10::NoGradGuard no_grad;
  continue_reduce();
  if (reduce_) reduce_.wait();
  reduce_ = Pending();
  const at::Tensor flags =
      reduced_.narrow(0, gradient_elements_, trainable_).to(at::kCPU, at::kFloat).contiguous();
  const float* flag = flags.const_data_ptr<float>();
  const at::Tensor gradients = reduced_.narrow(0, 0, gradient_elements_);
  for (Parameter& parameter : parameters_) {
    if (!parameter.trainable || *flag++ == 0.0F) continue;
    const at::Tensor gradient =
        gradients.narrow(0, parameter.gradient_offset, parameter.shard.numel())
            .view(parameter.shard.sizes())
            .to(parameter.shard.options());
    at::Tensor& sum = parameter.shard.mutable_grad();
    if (sum.defined())
      sum.add_(gradient);
    else
      sum = gradient;
  }
}

}  // namespace lerobot::distributed
