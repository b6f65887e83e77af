#include "lerobot/nn/dropout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/add.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/cpu_loops.h"
#include "lerobot/nn/elementwise.h"

namespace lerobot::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// --- Draws
// ----------------------------------------------------------------------------------------

/// torch's serial bernoulli_(p): one 64-bit number (two words) an element, its low 53 bits as a
/// fraction compared with p. A few times faster than torch's loop, which tempers word by word.
class BernoulliDraws {
 public:
  BernoulliDraws(at::mt19937_data_pod& engine, double p)
      : engine_(engine), bound_(static_cast<std::uint64_t>(std::ceil(std::ldexp(p, 53)))) {}

  void fill(std::uint8_t* mask, std::int64_t n) {
    while (n > 0) {
      if (left() == 0) twist();
      if (left() == 1) {  // a number whose words lie in two blocks
        std::uint32_t words[2];
        words[0] = engine_.state_[engine_.next_];
        twist();
        words[1] = engine_.state_[0];
        consume(1);
        std::uint32_t numbers[2];
        cpu::mersenne_temper(numbers, words, 2);
        cpu::mask_below(mask, numbers, bound_, 1);
        ++mask, --n;
        continue;
      }
      const std::int64_t count = std::min<std::int64_t>(n, left() / 2);
      std::array<std::uint32_t, cpu::kMersenneWords> numbers;
      cpu::mersenne_temper(numbers.data(), engine_.state_.data() + engine_.next_, 2 * count);
      cpu::mask_below(mask, numbers.data(), bound_, count);
      consume(2 * count);
      mask += count, n -= count;
    }
  }

  void skip(std::int64_t n) {
    for (std::int64_t words = 2 * n; words > 0;) {
      if (left() == 0) twist();
      const std::int64_t count = std::min<std::int64_t>(words, left());
      consume(count);
      words -= count;
    }
  }

 private:
  // torch counts down to 1, then twists before the next number.
  std::int64_t left() const { return engine_.left_ - 1; }
  void consume(std::int64_t words) {
    engine_.left_ -= static_cast<int>(words);
    engine_.next_ += static_cast<std::uint32_t>(words);
  }
  void twist() {
    cpu::mersenne_twist(engine_.state_.data());
    engine_.left_ = cpu::kMersenneWords + 1;
    engine_.next_ = 0;
  }

  at::mt19937_data_pod& engine_;
  std::uint64_t bound_;
};

void draw(at::CPUGeneratorImpl& generator, std::uint8_t* mask, std::int64_t kept_per_block,
          double keep, DropoutDraws draws) {
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod words = engine.data();
  BernoulliDraws source(words, keep);
  for (std::int64_t block = 0; block < draws.blocks; ++block) {
    source.fill(mask + block * kept_per_block, kept_per_block);
    source.skip(draws.draws_per_block - kept_per_block);
  }
  engine.set_data(words);
  generator.set_engine(engine);
}

/// Where torch is built with MKL and runs on an Intel CPU its bernoulli_ draws in another way. Asks
/// torch itself, once.
bool torch_draws_serially() {
  constexpr std::int64_t kTrial = 1000;
  constexpr double kKeep = 0.7;
  at::Generator theirs = at::detail::createCPUGenerator(1);
  at::Generator ours = at::detail::createCPUGenerator(1);
  at::Tensor expected = at::empty({kTrial}, at::kFloat).bernoulli_(kKeep, theirs);
  at::Tensor mask = at::empty({kTrial}, at::kByte);
  draw(*at::check_generator<at::CPUGeneratorImpl>(ours), mask.mutable_data_ptr<std::uint8_t>(),
       kTrial, kKeep, {1, kTrial});
  return mask.to(at::kFloat).equal(expected) && ours.get_state().equal(theirs.get_state());
}

/// 1 where an element stays. `like` is a contiguous CPU tensor.
at::Tensor keep_mask(const at::Tensor& like, double keep, DropoutDraws draws) {
  static const bool serial = torch_draws_serially();
  const std::int64_t kept_per_block = like.numel() / draws.blocks;
  if (draws.draws_per_block == 0) draws.draws_per_block = kept_per_block;
  check_internal(
      draws.draws_per_block >= kept_per_block && kept_per_block * draws.blocks == like.numel(),
      "dropout: the pattern of draws does not fit the tensor");
  if (!serial) {
    at::Tensor all = at::empty({draws.blocks, draws.draws_per_block}, at::kFloat).bernoulli_(keep);
    return all.narrow(1, 0, kept_per_block).to(at::kByte).reshape(like.sizes());
  }
  at::Tensor mask = at::empty(like.sizes(), at::kByte);
  auto* generator = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  std::lock_guard lock(generator->mutex_);
  draw(*generator, mask.mutable_data_ptr<std::uint8_t>(), kept_per_block, keep, draws);
  return mask;
}

// --- Passes over contiguous float32 tensors
// -------------------------------------------------------

at::Tensor scaled(const at::Tensor& x, const at::Tensor& mask, float scale) {
  at::Tensor y = at::empty_like(x);
  for_each_row(elementwise().add_output(y).add_const_input(x).add_const_input(mask).build(),
               [scale](char** data, const std::int64_t*, std::int64_t n) {
                 cpu::scale_masked(floats(data[0]), floats(data[1]), bytes(data[2]), scale, n);
               });
  return y;
}

class DropoutAddFunction : public Function<DropoutAddFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& residual, const at::Tensor& x,
                            const at::Tensor& mask, double scale) {
    ctx->save_for_backward({mask});
    ctx->saved_data["scale"] = scale;
    at::Tensor y = at::empty_like(x);
    auto config = elementwise();
    config.add_output(y).add_const_input(residual).add_const_input(x).add_const_input(mask);
    for_each_row(config.build(), [=](char** data, const std::int64_t*, std::int64_t n) {
      cpu::add_scaled_masked(floats(data[0]), floats(data[1]), floats(data[2]), bytes(data[3]),
                             static_cast<float>(scale), n);
    });
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor mask = ctx->get_saved_variables()[0];
    const auto scale = static_cast<float>(ctx->saved_data["scale"].toDouble());
    return {gradients[0], scaled(gradients[0].contiguous(), mask, scale), at::Tensor(),
            at::Tensor()};
  }
};

class DropoutFunction : public Function<DropoutFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& mask,
                            double scale) {
    ctx->save_for_backward({mask});
    ctx->saved_data["scale"] = scale;
    return scaled(x, mask, static_cast<float>(scale));
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor mask = ctx->get_saved_variables()[0];
    const auto scale = static_cast<float>(ctx->saved_data["scale"].toDouble());
    return {scaled(gradients[0].contiguous(), mask, scale), at::Tensor(), at::Tensor()};
  }
};

class ReluDropoutFunction : public Function<ReluDropoutFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, at::Tensor x, const at::Tensor& mask,
                            double scale) {
    for_each_row(elementwise().add_output(x).add_const_input(mask).build(),
                 [scale](char** data, const std::int64_t*, std::int64_t n) {
                   cpu::relu_scale_masked(floats(data[0]), bytes(data[1]),
                                          static_cast<float>(scale), n);
                 });
    ctx->mark_dirty({x});
    // The output alone tells the way back: it is positive exactly where the gradient passes.
    ctx->save_for_backward({x});
    ctx->saved_data["scale"] = scale;
    return x;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor y = ctx->get_saved_variables()[0];
    const auto scale = static_cast<float>(ctx->saved_data["scale"].toDouble());
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(y);
    for_each_row(elementwise().add_output(dx).add_const_input(dy).add_const_input(y).build(),
                 [scale](char** data, const std::int64_t*, std::int64_t n) {
                   cpu::relu_backward(floats(data[0]), floats(data[1]), floats(data[2]), scale, n);
                 });
    return {dx, at::Tensor(), at::Tensor()};
  }
};

// torch's own arithmetic: 1 / (1 - p) rounded to float32.
double scale_of(double p) { return static_cast<float>(1.0F / static_cast<float>(1.0 - p)); }

bool fused(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && x.numel() > 0;
}

at::Tensor unfused_dropout(const at::Tensor& x, double p, DropoutDraws draws) {
  if (!x.device().is_cpu() || x.numel() == 0) return at::dropout(x, p, true);
  return at::mul(x, keep_mask(x, 1.0 - p, draws).to(x.scalar_type()).div_(1.0 - p));
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, DropoutDraws draws) {
  if (p == 0.0) return x;
  const at::Tensor dense = x.contiguous();
  if (!fused(dense)) return unfused_dropout(dense, p, draws);
  return DropoutFunction::apply(dense, keep_mask(dense, 1.0 - p, draws), scale_of(p));
}

at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, double p,
                       DropoutDraws draws) {
  if (p == 0.0) return at::add(residual, x);
  const at::Tensor dense = x.contiguous();
  if (!fused(dense) || residual.sizes() != x.sizes() || !residual.is_contiguous() ||
      residual.scalar_type() != at::kFloat)
    return at::add(residual, dropout(dense, p, draws));
  return DropoutAddFunction::apply(residual, dense, keep_mask(dense, 1.0 - p, draws), scale_of(p));
}

at::Tensor relu_dropout(at::Tensor x, double p, DropoutDraws draws) {
  if (p == 0.0) return at::relu_(x);
  if (!fused(x) || !x.is_contiguous()) return dropout(at::relu(x), p, draws);
  return ReluDropoutFunction::apply(x, keep_mask(x, 1.0 - p, draws), scale_of(p));
}

}  // namespace lerobot::nn
