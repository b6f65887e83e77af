// Which rank and which of its logical workers ("lanes") owns which episodes, and what a lane gets
// of its rank's limits.
//
// Whole episodes are dealt out by length: the longest first, each to the owner with the fewest
// frames so far. No seed is involved, so that ownership is the same in every epoch and every run.
// The same rule deals episodes to ranks, then a rank's episodes to its lanes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lerobot::streaming {

/// Whole episodes in ascending order. 12 bytes an episode.
struct EpisodeList {
  std::vector<std::int64_t> episodes;
  std::vector<std::int32_t> frames;  ///< the length of each

  std::int64_t size() const { return static_cast<std::int64_t>(episodes.size()); }
  std::int64_t total_frames() const;
  bool operator==(const EpisodeList&) const = default;
};

/// Deals the episodes to `owners` owners; each list ascends. Episodes without frames are left out.
/// An owner's list is empty when there are fewer episodes than owners. O(E log E). Throws Error
/// when `owners` is less than 1, the episodes do not ascend or a length is negative.
std::vector<EpisodeList> deal_episodes(const EpisodeList& all, std::int64_t owners);

/// The episodes of every data-parallel rank. Throws Error as deal_episodes does, and when a rank
/// would own no episode.
std::vector<EpisodeList> rank_shards(const EpisodeList& selected, std::int64_t dp_world_size);

/// The lanes of a rank with `episodes` (at least 1) episodes: as many as --num_workers says, at
/// least one and at most one for each episode. Fewer than asked for is worth a line in the log.
std::int64_t lane_count(std::int64_t num_workers, std::int64_t episodes);

/// The episodes of every lane of a rank; none is empty.
std::vector<EpisodeList> lane_shards(const EpisodeList& of_rank, std::int64_t num_workers);

// --- What a lane gets ---------------------------------------------------------------------------

/// Episodes in the pool of a lane: `option` (--dataset.streaming_episode_pool_size) or, unset, the
/// lane's part of the 32 that a rank mixes: 32 / lanes, rounded half to even, at least 1.
std::int64_t lane_pool_size(std::optional<std::int64_t> option, std::int64_t lanes);

/// The lane's part of its rank's byte budget: divided and rounded down, at least 1.
std::uint64_t lane_byte_budget(std::uint64_t rank_bytes, std::int64_t lanes);

}  // namespace lerobot::streaming
