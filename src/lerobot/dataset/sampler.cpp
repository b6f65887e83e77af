#include "lerobot/dataset/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/base/random.h"

namespace lerobot::dataset {
namespace {

std::vector<bool> selected_episodes(std::size_t episodes,
                                    const std::optional<std::vector<std::int64_t>>& selection) {
  if (!selection) return std::vector<bool>(episodes, true);
  std::vector<bool> selected(episodes, false);
  for (std::int64_t episode : *selection) {
    if (episode < 0 || !std::cmp_less(episode, episodes))
      fail("episode {} was selected, but the dataset has episodes 0 to {}", episode,
           static_cast<std::int64_t>(episodes) - 1);
    selected[static_cast<std::size_t>(episode)] = true;
  }
  return selected;
}

}  // namespace

EpisodeAwareSampler::EpisodeAwareSampler(std::span<const std::int64_t> from,
                                         std::span<const std::int64_t> to, SamplerOptions options)
    : seed_(options.seed), shuffle_(options.shuffle) {
  if (options.drop_first < 0)
    fail("frames dropped at an episode's start must not be negative: {}", options.drop_first);
  if (options.drop_last < 0)
    fail("frames dropped at an episode's end must not be negative: {}", options.drop_last);
  if (from.size() != to.size())
    fail("episode starts and ends must be as many, found {} and {}", from.size(), to.size());
  if (options.first_row && options.first_row->size() != from.size())
    fail("the rows of the episodes' first frames must be {}, found {}", from.size(),
         options.first_row->size());

  const std::vector<bool> selected = selected_episodes(from.size(), options.episodes);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!selected[i]) continue;
    const std::int64_t frames = to[i] - from[i];
    // Two steps, so that huge drops do not overflow.
    const std::int64_t after_first = frames - options.drop_first;
    if (after_first <= options.drop_last) {
      log::warning(
          "Episode {} has {} frames, and leaving out its first {} and last {} removes all of them. "
          "It is skipped.",
          i, frames, options.drop_first, options.drop_last);
      continue;
    }
    const std::int64_t first = options.first_row ? (*options.first_row)[i] : from[i];
    runs_.push_back({checked_add(first, options.drop_first, "an episode's first frame"),
                     after_first - options.drop_last});
    size_ = checked_add(size_, runs_.back().length, "the number of frames");
  }
  if (size_ == 0)
    fail(
        "no frame is left to train on: of {} episodes, {} were selected, and each of them is not "
        "longer than the {} + {} frames that are left out at its start and end",
        from.size(), std::count(selected.begin(), selected.end(), true), options.drop_first,
        options.drop_last);
}

std::vector<std::int64_t> EpisodeAwareSampler::order(std::uint64_t epoch) const {
  std::vector<std::int64_t> frames = sequential_order();
  if (shuffle_) torch_shuffle(frames, epoch_seed(seed_, epoch));
  return frames;
}

std::vector<std::int64_t> EpisodeAwareSampler::sequential_order() const {
  std::vector<std::int64_t> frames(static_cast<std::size_t>(size_));
  auto next = frames.begin();
  for (const Run& run : runs_) {
    std::iota(next, next + run.length, run.start);
    next += run.length;
  }
  return frames;
}

}  // namespace lerobot::dataset
