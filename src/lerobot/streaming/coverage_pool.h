// The order of the samples of one logical worker: which frame of which episode comes next.
//
// An epoch of a worker visits every frame of its episodes once. A few episodes are resident at a
// time; a frame is drawn from one of them, an episode that has no frame left makes room for the
// next. Everything is a pure function of the options, the episodes and their sizes: no thread,
// queue or clock has a say. Formulas: docs/streaming.md, "Order"; the generator is numpy's
// default_rng([seed, epoch]).
//
// Memory: 12 bytes an episode and 4 a frame of the resident episodes that have been drawn from; 4
// bytes an episode more while upcoming() looks into the next epoch, 8 more for each episode that
// was passed over because it did not fit the byte budget.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lerobot::streaming {

enum class SamplingStrategy {
  kRemaining,   ///< an episode is drawn with a probability proportional to its frames left
  kRoundRobin,  ///< each round takes one frame of every resident episode, in shuffled order
};

struct CoveragePoolOptions {
  /// Episodes resident at once, at least 1.
  std::int64_t pool_size = 32;
  /// Bytes of the resident episodes together, at least 1; values of 2^63 and more count as 2^63
  /// - 1.
  std::uint64_t byte_budget = 0;
  SamplingStrategy strategy = SamplingStrategy::kRemaining;
  std::uint64_t seed = 1000;
};

/// A drawn sample.
struct Anchor {
  std::int64_t episode = 0;
  std::int64_t frame = 0;     ///< within the episode
  std::int64_t epoch = 0;     ///< of this worker
  std::int64_t position = 0;  ///< in that epoch

  bool operator==(const Anchor&) const = default;
};

/// The bytes that an episode counts in the byte budget.
using EpisodeBytes = std::function<std::uint64_t(std::int64_t episode)>;

/// One worker's endless sequence of samples. Not thread-safe, const functions included. Not to be
/// used any more after one of its functions threw.
class CoveragePool {
 public:
  /// `episodes` ascend, `frames` gives the length of each of them (same order; episodes without
  /// frames are left out). `size` gives an episode's bytes; it is asked in every epoch once, when
  /// the episode might be admitted: for as many episodes as are admitted, unless the budget binds.
  /// Throws Error when no frame is left or an option is out of range. Admits the first episodes of
  /// epoch 0.
  CoveragePool(std::span<const std::int64_t> episodes, std::vector<std::int32_t> frames,
               EpisodeBytes size, CoveragePoolOptions options);
  ~CoveragePool();
  CoveragePool(CoveragePool&&) noexcept;
  CoveragePool& operator=(CoveragePool&&) noexcept;

  /// Frames of an epoch.
  std::int64_t frames_per_epoch() const;
  /// Epoch of the next sample, and its position there.
  std::int64_t epoch() const;
  std::int64_t position() const;

  /// The next sample. An episode whose last frame it is leaves at once and others are admitted. The
  /// call that returns the last sample of an epoch also begins the next one: its first episodes are
  /// admitted then, so that they can be fetched while the batch is trained on. Throws Error naming
  /// episode, size and budget when an episode alone is larger than the budget.
  Anchor next();
  /// As `samples` (at least 0) calls of next(), fast: whole epochs cost nothing, the rest of an
  /// epoch only its random draws.
  void skip(std::int64_t samples);

  /// Episodes that entered and left the pool since the last call of take_changes(), in order: who
  /// applies them to a set has the residents. The constructor's admissions are the first changes.
  /// An episode that ends an epoch and begins the next one has left and is admitted again. After a
  /// skip() there is only the difference: who is gone, then who is new.
  struct Change {
    std::int64_t episode = 0;
    bool admitted = false;    ///< else: it left
    std::uint64_t bytes = 0;  ///< what it counts in the byte budget
  };
  std::vector<Change> take_changes();

  /// Resident episodes in the order of their admission.
  std::vector<std::int64_t> residents() const;
  /// What the residents count in the byte budget.
  std::uint64_t resident_bytes() const;
  /// The next `count` episodes that are not resident, each once: those that wait in this epoch, in
  /// the order in which they wait (one that fits the budget may overtake one that does not), then
  /// those of the next epoch. Fewer when the dataset is smaller. What is worth fetching ahead.
  std::vector<std::int64_t> upcoming(std::int64_t count) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Throws Error naming the episode, its bytes and the byte budget of the worker, with what helps,
/// unless the episode fits it alone.
void require_fits_budget(std::int64_t episode, std::uint64_t bytes, std::uint64_t byte_budget);

/// The same for all `episodes`, before anything is fetched. `bound` is an upper bound that is cheap
/// to have; `size` is asked only where the bound exceeds the budget.
void require_fit_budget(std::span<const std::int64_t> episodes, const EpisodeBytes& bound,
                        const EpisodeBytes& size, std::uint64_t byte_budget);

}  // namespace lerobot::streaming
