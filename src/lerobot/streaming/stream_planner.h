// Which sample comes next, and what has to be fetched for it: the part of a stream that knows no
// threads.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lerobot/streaming/coverage_pool.h"
#include "lerobot/streaming/episode_cache.h"
#include "lerobot/streaming/stream_source.h"
#include "lerobot/streaming/streaming_state.h"
#include "lerobot/streaming/virtual_topology.h"

namespace lerobot::streaming {

/// A logical worker that this process runs.
struct Lane {
  std::int64_t rank = 0;    ///< virtual
  std::int64_t number = 0;  ///< within it
  std::int64_t pool_size = 0;
  CoveragePool pool;
  EpisodeCache cache;
  /// Admitted by the pool, but there was no room yet.
  std::deque<CoveragePool::Change> waiting;
};

struct StreamPlan {
  /// Who delivers which samples, and the loop step with which to begin.
  VirtualTopology topology;
  std::int64_t step = 0;
  /// This process among those that train: it takes its part of every global batch.
  std::int64_t world = 1;
  std::int64_t rank = 0;
  OrderSettings settings;
  std::int64_t prefetch_episodes = 8;

  /// Samples that this process has of a step.
  std::int64_t batch_size() const { return topology.global_batch() / world; }
};

/// Draws this process's samples one after the other, and reserves, leases and frees their episodes
/// on the way. What next() returns is a pure function of plan and dataset; when it returns depends
/// on the bytes that the leases of earlier samples hold. Not thread-safe: the loader's lock guards
/// it.
class StreamPlanner {
 public:
  /// A drawn sample. Its entry holds a lease, which whoever has decoded it ends.
  struct Sample {
    Lane* lane = nullptr;
    EpisodeCache::Entry* entry = nullptr;
    Anchor anchor;
  };
  struct Wanted {
    Lane* lane = nullptr;
    EpisodeCache::Entry* entry = nullptr;
  };

  /// Plans every lane up to its position. Throws Error when a rank owns no episode, when an episode
  /// is larger than a lane's byte budget, naming what helps, and when the topology's lanes are not
  /// those of the episodes.
  StreamPlanner(const StreamSource& source, StreamPlan plan);

  /// The next sample of this process; nullopt while its lane waits for room.
  std::optional<Sample> next();
  /// The episode that is to be fetched next: one that is needed, else one that will be; null
  /// members when there is none.
  Wanted next_to_fetch();
  /// Whether next_to_fetch() may have more to say than when this was last asked.
  bool take_news() { return std::exchange(has_news_, false); }

  /// Steps in which all virtual ranks together deliver as many samples as an epoch has.
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::uint64_t reserved_bytes() const;
  std::uint64_t resident_bytes() const;

 private:
  std::unique_ptr<Lane> make_lane(std::int64_t rank, std::int64_t number, EpisodeList episodes,
                                  const CoveragePoolOptions& options, std::int64_t delivered);
  void make_lanes_of_rank(std::int64_t rank, const EpisodeList& episodes);
  Lane& lane_of(const BatchPart& part);
  void apply_changes(Lane& lane);
  bool admit_waiting(Lane& lane);
  void want_ahead(Lane& lane);

  const std::shared_ptr<const EpisodeReader> reader_;
  const StreamPlan plan_;
  std::int64_t steps_per_epoch_ = 0;
  std::vector<std::unique_ptr<Lane>> lanes_;  // rank after rank
  std::int64_t first_rank_ = 0;
  std::vector<std::size_t> first_lane_of_rank_;
  // The loop step under way, the lane batch of it, and the row in that.
  std::int64_t step_;
  std::vector<BatchPart> parts_;
  std::size_t part_ = 0;
  std::int64_t row_ = 0;
  bool has_news_ = true;
};

}  // namespace lerobot::streaming
