#include "lerobot/train/evaluation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "lerobot/dataset/episode_selection.h"

namespace lerobot::train {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The positions of the batches first, first + step, ... of `positions`.
std::vector<std::int64_t> every_batch(const std::vector<std::int64_t>& positions,
                                      std::int64_t batch_size, std::int64_t first,
                                      std::int64_t step) {
  const auto samples = static_cast<std::int64_t>(positions.size());
  std::vector<std::int64_t> taken;
  for (std::int64_t begin = first * batch_size; begin < samples; begin += step * batch_size)
    taken.insert(taken.end(), positions.begin() + begin,
                 positions.begin() + std::min(begin + batch_size, samples));
  return taken;
}

}  // namespace

Evaluation::Evaluation(Session& session)
    : session_(session), autocast_(autocast_dtype(session.config.accelerator.mixed_precision)) {
  const auto& config = session.config;
  const distributed::World& world = *session.world;
  const auto all = dataset::evaluation_positions(session.datasets.held_out->task_index(),
                                                 config.max_eval_samples);
  batches_ = divide_up(static_cast<std::int64_t>(all.size()), config.batch_size);
  auto positions = every_batch(all, config.batch_size, world.rank(), world.size());
  own_batches_ = divide_up(static_cast<std::int64_t>(positions.size()), config.batch_size);
  passes_ = own_batches_;
  if (const std::int64_t most = divide_up(batches_, world.size());
      world.mesh().is_sharded() && own_batches_ < most) {
    // Own batches are full ones: only the last batch of all is short, and its rank has the most.
    const auto filler = every_batch(all, config.batch_size, 0, batches_);
    positions.insert(positions.end(), filler.begin(), filler.end());
    passes_ = most;
  }
  if (positions.empty()) return;
  auto options = map_loader_options(config, session.device.is_cuda());
  options.prefetch_across_epochs = false;
  const auto samples = static_cast<std::int64_t>(positions.size());
  loader_ = std::make_unique<dataset::MapLoader>(
      session.datasets.held_out,
      [positions = std::move(positions)](std::uint64_t) { return positions; }, samples,
      std::move(options));
}

double Evaluation::loss() {
  session_.policy->module().train(false);
  double sum = 0;
  {
    const at::NoGradGuard no_grad;
    for (std::int64_t i = 0; i < passes_; ++i) {
      dataset::Batch batch = loader_->next();
      session_.processors->preprocessor.apply(batch);
      const AutocastScope autocast(session_.device, autocast_);
      const double loss = session_.model->compute_loss(batch, false).loss.item().toDouble();
      if (i < own_batches_) sum += loss;
    }
  }
  session_.policy->module().train();
  const at::Tensor total = at::full({1}, sum, at::kDouble);
  session_.world->all().all_reduce(total, distributed::Reduction::kSum).wait();
  return total.item().toDouble() / static_cast<double>(std::max<std::int64_t>(batches_, 1));
}

}  // namespace lerobot::train
