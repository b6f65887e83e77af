// Which frame of a dataset comes at which position of an epoch: LeRobot's EpisodeAwareSampler.
//
// The order of epoch e is a pure function of (seed, e): torch.randperm over the kept frames with a
// generator of its own, seeded by epoch_seed(seed, e). It is the same on every rank, touches no
// global generator, and does not depend on threads. Thread-safe after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lerobot::dataset {

struct SamplerOptions {
  /// Episodes to draw from; all without it. Their order and repetitions have no effect.
  std::optional<std::vector<std::int64_t>> episodes = std::nullopt;
  /// Frames left out at the start and at the end of every episode.
  std::int64_t drop_first = 0;
  std::int64_t drop_last = 0;
  /// The training seed, 0 when that is null.
  std::uint64_t seed = 0;
  /// False: every epoch has the frames in the order of the dataset.
  bool shuffle = true;
  /// The absolute-to-relative map of a partly loaded dataset, one entry an episode: the row of the
  /// loaded table that holds the episode's first frame (ignored for episodes that are not drawn
  /// from). Without it orders hold global frame numbers.
  std::optional<std::vector<std::int64_t>> first_row = std::nullopt;
};

class EpisodeAwareSampler {
 public:
  /// Episode i covers the global frames [from[i], to[i]). Episodes that the drops leave without a
  /// frame are skipped with a warning. Throws Error when no frame is left, when a drop is negative,
  /// when an episode of the selection does not exist or when the lists' lengths differ.
  EpisodeAwareSampler(std::span<const std::int64_t> from, std::span<const std::int64_t> to,
                      SamplerOptions options = {});

  /// Frames of one epoch.
  std::int64_t size() const { return size_; }
  bool shuffles() const { return shuffle_; }

  /// The frames of an epoch (0, 1, ...) in the order in which they are drawn: 8 bytes a frame.
  std::vector<std::int64_t> order(std::uint64_t epoch) const;
  /// The same frames in the order of the dataset.
  std::vector<std::int64_t> sequential_order() const;

 private:
  /// `length` frames (or rows) from `start` on.
  struct Run {
    std::int64_t start;
    std::int64_t length;
  };

  std::vector<Run> runs_;
  std::int64_t size_ = 0;
  std::uint64_t seed_ = 0;
  bool shuffle_ = true;
};

}  // namespace lerobot::dataset
