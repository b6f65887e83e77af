#include "lerobot/distributed/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "lerobot/base/error.h"
#include "lerobot/base/trace.h"
#include "lerobot/distributed/communicator_state.h"
#include "lerobot/distributed/reduction.h"

namespace lerobot::distributed {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

struct Pending::Operation {
  std::shared_ptr<const Communicator::State> state;
  const char* name;
  std::vector<at::Tensor> tensors;
  Works works;
  /// When there is more to do than `works`.
  std::future<void> finished;

  void wait_for_works() {
    if (finished.valid()) return finished.get();
    for (const auto& work : works) work->wait();
  }
  void wait() {
    RECORD_USER_SCOPE(fmt::format("wait for {}", name));
    const StepClock::Communication communication(state->clock.get());
    try {
      wait_for_works();
    } catch (const InternalError&) {
      throw;
    } catch (const std::exception& error) {
      state->fail_operation(name, error);
    }
  }
};

Pending::Pending() = default;
Pending::Pending(std::unique_ptr<Operation> operation) : operation_(std::move(operation)) {}
Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending dropped(std::move(*this));
  operation_ = std::move(other.operation_);
  return *this;
}

Pending::~Pending() {
  if (!operation_) return;
  try {
    // Without asking who is to blame: nobody will hear it.
    operation_->wait_for_works();
  } catch (const std::exception&) {
  }
}

void Pending::wait() {
  if (const auto operation = std::move(operation_)) operation->wait();
}

void Communicator::State::fail_operation(const char* operation, const std::exception& error) const {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  monitor->fail_operation(operation,
                          torch_error ? torch_error->what_without_backtrace() : error.what());
}

namespace {

using State = Communicator::State;
using StatePointer = std::shared_ptr<const State>;
using Tensors = std::vector<at::Tensor>;

/// Tags that callers of send() cannot give.
constexpr std::int32_t kFirstOwnTag = 1 << 30;

bool is_on_gpu(const at::Tensor& tensor) { return !tensor.device().is_cpu(); }

c10d::Backend& backend(const State& state, const at::Tensor& tensor) {
  if (!is_on_gpu(tensor)) return *state.gloo;
  check_internal(state.nccl != nullptr, "a tensor of a GPU in a group over Gloo");
  return *state.nccl;
}

c10d::ReduceOp reduce_op(Reduction reduction, bool has_average) {
  if (reduction == Reduction::kMax) return c10d::ReduceOp::MAX;
  return reduction == Reduction::kAverage && has_average ? c10d::ReduceOp::AVG
                                                         : c10d::ReduceOp::SUM;
}

/// Starts an operation and turns what it throws at once into the Error that wait() would throw.
template <class Start>
Pending begin(const StatePointer& state, const char* name, Tensors tensors, const Start& start) {
  for (const at::Tensor& tensor : tensors)
    check_internal(tensor.is_contiguous(), "a collective operation on a strided tensor");
  auto operation = std::make_unique<Pending::Operation>();
  operation->state = state;
  operation->name = name;
  operation->tensors = std::move(tensors);
  const StepClock::Communication communication(state->clock.get());
  try {
    start(*operation);
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    state->fail_operation(name, error);
  }
  return Pending(std::move(operation));
}

/// Has `meanwhile` done in the group's own thread, and `rest` as soon as the operation's works are.
void then(Pending::Operation& operation, std::function<void()> meanwhile,
          std::function<void()> rest) {
  auto task = std::make_shared<std::packaged_task<void()>>(
      [name = operation.name, works = std::move(operation.works), meanwhile = std::move(meanwhile),
       rest = std::move(rest)] {
        const trace::Span span(name);
        if (meanwhile) meanwhile();
        for (const auto& work : works) work->wait();
        if (rest) rest();
      });
  operation.finished = task->get_future();
  operation.state->finisher->submit([task] { (*task)(); });
}

/// A tag for an operation that is made of sends; every rank of the group counts the same.
std::int32_t next_tag(const State& state) {
  return kFirstOwnTag + static_cast<std::int32_t>(state.own_tags++ % kFirstOwnTag);
}

/// Up to here every rank sends its part to each other one at once, which takes half to four fifths
/// of the time of Gloo's ring on one machine. A larger group would have too many streams.
constexpr std::int64_t kMostForDirectGather = 16;

/// Every rank sends its part to all others, straight into their outputs.
void gather_parts(Pending::Operation& operation, const at::Tensor& output,
                  const at::Tensor& input) {
  const State& state = *operation.state;
  const at::Tensor flat = output.view({state.size, input.numel()});
  const std::int32_t tag = next_tag(state);
  // Each rank begins with its neighbour, so that not all send to one.
  for (std::int64_t step = 1; step < state.size; ++step) {
    const std::int64_t from = (state.rank + state.size - step) % state.size;
    Tensors theirs{flat.select(0, from)};
    operation.works.push_back(state.gloo->recv(theirs, static_cast<int>(from), tag));
  }
  for (std::int64_t step = 1; step < state.size; ++step) {
    Tensors mine{input};
    const std::int64_t to = (state.rank + step) % state.size;
    operation.works.push_back(state.gloo->send(mine, static_cast<int>(to), tag));
  }
  const at::Tensor own = flat.select(0, state.rank);
  if (own.const_data_ptr() == input.const_data_ptr()) return;
  then(
      operation,
      [own, input] { std::memcpy(own.mutable_data_ptr(), input.const_data_ptr(), input.nbytes()); },
      nullptr);
}

/// Every rank sends each other rank its part, and adds up what has come in the order of ranks.
/// Moves as few bytes as a ring does, in one step instead of size - 1.
void scatter_parts(Pending::Operation& operation, const at::Tensor& output, const at::Tensor& input,
                   Reduction reduction) {
  const State& state = *operation.state;
  const std::int64_t part = output.numel();
  const at::Tensor flat = input.view({state.size, part});
  const at::Tensor came = at::empty({state.size - 1, part}, input.options());
  const std::int32_t tag = next_tag(state);

  Tensors parts(static_cast<std::size_t>(state.size));
  parts[static_cast<std::size_t>(state.rank)] = flat.select(0, state.rank);
  for (std::int64_t step = 1; step < state.size; ++step) {
    const std::int64_t from = (state.rank + state.size - step) % state.size;
    Tensors buffer{came.select(0, step - 1)};
    parts[static_cast<std::size_t>(from)] = buffer[0];
    operation.works.push_back(state.gloo->recv(buffer, static_cast<int>(from), tag));
  }
  for (std::int64_t step = 1; step < state.size; ++step) {
    const std::int64_t to = (state.rank + step) % state.size;
    Tensors mine{flat.select(0, to)};
    operation.works.push_back(state.gloo->send(mine, static_cast<int>(to), tag));
  }
  then(operation, nullptr,
       [output, parts = std::move(parts), reduction] { reduce_parts(output, parts, reduction); });
}

}  // namespace

Communicator::Communicator() = default;
Communicator::Communicator(std::shared_ptr<const State> state) : state_(std::move(state)) {}

std::int64_t Communicator::rank() const { return state_ ? state_->rank : 0; }
std::int64_t Communicator::size() const { return state_ ? state_->size : 1; }

c10d::ProcessGroup* Communicator::process_group() const {
  return state_ ? state_->group.get() : nullptr;
}

void Communicator::fail_operation(const char* operation, const std::exception& error) const {
  check_internal(state_ != nullptr, "a failed operation in a group of one");
  state_->fail_operation(operation, error);
}

Pending Communicator::all_gather(const at::Tensor& output, const at::Tensor& input) const {
  check_internal(output.numel() == size() * input.numel() && output.dtype() == input.dtype(),
                 "all_gather: the output does not fit the input");
  const at::NoGradGuard no_grad;
  if (input.numel() == 0) return {};
  if (!state_) {
    output.view({-1}).copy_(input.view({-1}));
    return {};
  }
  return begin(state_, "all_gather", {output, input}, [&](Pending::Operation& operation) {
    if (!is_on_gpu(input) && size() <= kMostForDirectGather)
      return gather_parts(operation, output, input);
    at::Tensor to = output.view({-1}), from = input.view({-1});
    operation.works.push_back(backend(*state_, input)._allgather_base(to, from));
  });
}

Pending Communicator::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                     Reduction reduction) const {
  check_internal(input.numel() == size() * output.numel() && output.dtype() == input.dtype(),
                 "reduce_scatter: the input does not fit the output");
  const at::NoGradGuard no_grad;
  if (output.numel() == 0) return {};
  if (!state_) {
    output.view({-1}).copy_(input.view({-1}));
    return {};
  }
  return begin(state_, "reduce_scatter", {output, input}, [&](Pending::Operation& operation) {
    if (!is_on_gpu(input)) return scatter_parts(operation, output, input, reduction);
    at::Tensor to = output.view({-1}), from = input.view({-1});
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(reduction, true);
    operation.works.push_back(backend(*state_, input)._reduce_scatter_base(to, from, options));
  });
}

Pending Communicator::all_reduce(const at::Tensor& tensor, Reduction reduction) const {
  const at::NoGradGuard no_grad;
  if (!state_ || tensor.numel() == 0) return {};
  check_internal(reduction != Reduction::kAverage || tensor.is_floating_point(),
                 "all_reduce: an average of integers");
  return begin(state_, "all_reduce", {tensor}, [&](Pending::Operation& operation) {
    Tensors tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(reduction, is_on_gpu(tensor));
    operation.works.push_back(backend(*state_, tensor).allreduce(tensors, options));
    // Gloo has no average.
    if (reduction == Reduction::kAverage && !is_on_gpu(tensor))
      then(operation, nullptr, [tensor, size = state_->size] { divide(tensor, size); });
  });
}

Pending Communicator::broadcast(const at::Tensor& tensor, std::int64_t from) const {
  check_internal(from >= 0 && from < size(), "broadcast: no such rank in the group");
  if (!state_ || tensor.numel() == 0) return {};
  return begin(state_, "broadcast", {tensor}, [&](Pending::Operation& operation) {
    Tensors tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    operation.works.push_back(backend(*state_, tensor).broadcast(tensors, options));
  });
}

Pending Communicator::send(const at::Tensor& tensor, std::int64_t to, std::int32_t tag) const {
  check_internal(state_ && to >= 0 && to < size() && to != rank() && tag >= 0 && tag < kFirstOwnTag,
                 "send: no such rank in the group, or a negative tag");
  if (tensor.numel() == 0) return {};
  return begin(state_, "send", {tensor}, [&](Pending::Operation& operation) {
    Tensors tensors{tensor};
    operation.works.push_back(backend(*state_, tensor).send(tensors, static_cast<int>(to), tag));
  });
}

Pending Communicator::receive(const at::Tensor& tensor, std::int64_t from, std::int32_t tag) const {
  check_internal(
      state_ && from >= 0 && from < size() && from != rank() && tag >= 0 && tag < kFirstOwnTag,
      "receive: no such rank in the group, or a negative tag");
  if (tensor.numel() == 0) return {};
  return begin(state_, "receive", {tensor}, [&](Pending::Operation& operation) {
    Tensors tensors{tensor};
    operation.works.push_back(backend(*state_, tensor).recv(tensors, static_cast<int>(from), tag));
  });
}

void Communicator::barrier() const {
  if (!state_) return;
  begin(state_, "barrier", {}, [&](Pending::Operation& operation) {
    operation.works.push_back(state_->gloo->barrier());
  }).wait();
}

std::vector<std::string> Communicator::all_gather_text(const std::string& text) const {
  if (!state_) return {text};
  const at::Tensor length = at::empty({1}, at::kLong), lengths = at::empty({size()}, at::kLong);
  *length.mutable_data_ptr<std::int64_t>() = static_cast<std::int64_t>(text.size());
  all_gather(lengths, length).wait();
  const std::int64_t* sizes = lengths.const_data_ptr<std::int64_t>();
  const std::int64_t longest = *std::max_element(sizes, sizes + size());

  const at::Tensor mine = at::zeros({longest}, at::kByte);
  const at::Tensor all = at::empty({size(), longest}, at::kByte);
  if (!text.empty()) std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  all_gather(all, mine).wait();
  std::vector<std::string> texts;
  const char* bytes = static_cast<const char*>(all.const_data_ptr());
  for (std::int64_t r = 0; r < size(); ++r)
    texts.emplace_back(sizes[r] == 0 ? "" : bytes + r * longest,
                       static_cast<std::size_t>(sizes[r]));
  return texts;
}

std::string Communicator::broadcast_text(const std::string& text, std::int64_t from) const {
  if (!state_) return text;
  const at::Tensor length = at::empty({1}, at::kLong);
  *length.mutable_data_ptr<std::int64_t>() = static_cast<std::int64_t>(text.size());
  broadcast(length, from).wait();
  const std::int64_t size_of_text = *length.const_data_ptr<std::int64_t>();
  const at::Tensor bytes = at::empty({size_of_text}, at::kByte);
  if (rank() == from && !text.empty())
    std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  broadcast(bytes, from).wait();
  if (size_of_text == 0) return {};
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(size_of_text)};
}

}  // namespace lerobot::distributed
