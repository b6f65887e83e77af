// Collective operations among the ranks of one group, over Gloo (tensors of the CPU) and NCCL
// (tensors of a GPU).
//
// Every rank of the group must make the same calls in the same order. All tensors are contiguous.
// Errors name the operation and, as far as they can be known, the ranks that are gone.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace c10d {
class ProcessGroup;
}

namespace lerobot::distributed {

/// An operation under way: it goes on while the caller computes. Its tensors are kept alive until
/// it is waited for; dropping it waits too, and swallows the error.
class Pending {
 public:
  struct Operation;

  Pending();
  explicit Pending(std::unique_ptr<Operation> operation);
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  /// Whether there is something to wait for.
  explicit operator bool() const { return operation_ != nullptr; }
  /// Returns when the result can be used: at once on a GPU, whose current stream then waits. Throws
  /// Error. Once.
  void wait();

 private:
  std::unique_ptr<Operation> operation_;
};

enum class Reduction { kSum, kAverage, kMax };

class Communicator {
 public:
  struct State;

  /// A group of one: every operation is done at once.
  Communicator();
  explicit Communicator(std::shared_ptr<const State> state);

  std::int64_t rank() const;
  std::int64_t size() const;

  /// `output` holds size() times as many elements as `input`: rank r's come at r * input.numel().
  /// `input` may be this rank's part of `output`, which saves a copy.
  Pending all_gather(const at::Tensor& output, const at::Tensor& input) const;
  /// `input` holds size() times as many elements as `output`, which becomes the reduction of all
  /// ranks' parts at rank() * output.numel(). `input` may be overwritten.
  Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                         Reduction reduction) const;
  Pending all_reduce(const at::Tensor& tensor, Reduction reduction) const;
  Pending broadcast(const at::Tensor& tensor, std::int64_t from) const;
  /// 0 <= tag < 2^30. A receiver names the sender and the tag.
  Pending send(const at::Tensor& tensor, std::int64_t to, std::int32_t tag) const;
  Pending receive(const at::Tensor& tensor, std::int64_t from, std::int32_t tag) const;

  /// Returns when all ranks have come here.
  void barrier() const;
  /// Every rank's text, by rank, on every rank. For small things.
  std::vector<std::string> all_gather_text(const std::string& text) const;
  /// Rank `from`'s text on every rank.
  std::string broadcast_text(const std::string& text, std::int64_t from = 0) const;

  /// Null in a group of one.
  std::shared_ptr<const State> state() const { return state_; }
  /// torch's own object, for c10d::Reducer. Null in a group of one.
  c10d::ProcessGroup* process_group() const;
  /// For operations that were started through process_group(): throws the Error that names the rank
  /// to blame for what they threw.
  [[noreturn]] void fail_operation(const char* operation, const std::exception& error) const;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace lerobot::distributed
