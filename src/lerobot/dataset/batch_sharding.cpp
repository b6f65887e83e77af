#include "lerobot/dataset/batch_sharding.h"

#include <algorithm>
#include <string>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"

namespace lerobot::dataset {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

}  // namespace

BatchSharder::BatchSharder(std::int64_t samples, std::int64_t batch_size, std::int64_t world,
                           std::int64_t rank, std::int64_t first_sample, bool even_batches)
    : samples_(samples),
      batch_size_(batch_size),
      world_(world),
      rank_(rank),
      first_sample_(first_sample),
      even_batches_(even_batches || world > 1) {
  if (samples < 1) fail("an epoch needs at least one sample, found {}", samples);
  if (batch_size < 1) fail("the batch size must be positive, found {}", batch_size);
  if (world < 1) fail("the number of data-parallel processes must be positive, found {}", world);
  if (rank < 0 || rank >= world)
    fail("the rank must be between 0 and {}, found {}", world - 1, rank);
  if (first_sample < 0 || first_sample >= samples)
    fail("the first sample must be between 0 and {}, found {}", samples - 1, first_sample);
  // Positions reach batches_per_epoch * batch_size * world: below samples + world * batch_size.
  checked_add(samples, checked_mul(batch_size, world, "samples of one step of all ranks"),
              "samples of one epoch with its filler");
  batches_per_epoch_ = divide_up(divide_up(samples - first_sample, batch_size), world);
}

std::vector<std::int64_t> BatchSharder::positions(std::int64_t batch) const {
  check_internal(batch >= 0 && batch < batches_per_epoch_, "batch number outside its epoch");
  const std::int64_t first = first_sample_ + (batch * world_ + rank_) * batch_size_;
  const std::int64_t count = even_batches_ ? batch_size_ : std::min(batch_size_, samples_ - first);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    positions[static_cast<std::size_t>(i)] = (first + i) % samples_;
  return positions;
}

EpochPosition position_after(std::int64_t step, std::int64_t samples, std::int64_t batch_size,
                             std::int64_t world) {
  if (step < 0) fail("a training step must not be negative, found {}", step);
  const std::int64_t per_epoch = BatchSharder(samples, batch_size, world).batches_per_epoch();
  const std::int64_t batch = step % per_epoch;
  return {step / per_epoch, batch, std::min(batch * batch_size * world, samples)};
}

}  // namespace lerobot::dataset
