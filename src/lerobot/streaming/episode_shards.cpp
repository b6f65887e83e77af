#include "lerobot/streaming/episode_shards.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::streaming {
namespace {

/// Episodes that a rank without a pool option mixes at once.
constexpr std::int64_t kRankPoolSize = 32;

void check(const EpisodeList& list) {
  if (list.episodes.size() != list.frames.size())
    fail("the stream has {} episodes, but {} episode lengths", list.episodes.size(),
         list.frames.size());
  if (list.episodes.size() > std::numeric_limits<std::uint32_t>::max())
    fail("the stream has {} episodes, more than can be dealt out", list.episodes.size());
  for (std::size_t i = 0; i < list.episodes.size(); ++i) {
    if (i > 0 && list.episodes[i] <= list.episodes[i - 1])
      fail("the stream's episodes must ascend, found {} after {}", list.episodes[i],
           list.episodes[i - 1]);
    if (list.frames[i] < 0)
      fail("the length of episode {} must not be negative, found {}", list.episodes[i],
           list.frames[i]);
  }
}

/// Places in the list of the episodes that have frames, the longest first, equal ones as they lie.
std::vector<std::uint32_t> longest_first(const std::vector<std::int32_t>& frames) {
  // Length and place in one number: sorting those is several times faster than by a comparison that
  // looks into the list.
  std::vector<std::uint64_t> keys;
  keys.reserve(frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i)
    if (frames[i] > 0)
      keys.push_back(std::uint64_t{~static_cast<std::uint32_t>(frames[i])} << 32 | i);
  std::ranges::sort(keys);
  std::vector<std::uint32_t> places(keys.size());
  std::ranges::transform(keys, places.begin(),
                         [](std::uint64_t key) { return static_cast<std::uint32_t>(key); });
  return places;
}

constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();

/// The owner of every place in the list.
std::vector<std::uint32_t> owners_of(const std::vector<std::int32_t>& frames,
                                     std::uint32_t owners) {
  std::vector<std::uint32_t> owner(frames.size(), kNobody);
  using Load = std::pair<std::int64_t, std::uint32_t>;  // frames so far, owner
  std::vector<Load> idle(owners);
  for (std::uint32_t i = 0; i < owners; ++i) idle[i] = {0, i};
  std::priority_queue lightest(std::greater<Load>{}, std::move(idle));
  for (const std::uint32_t place : longest_first(frames)) {
    auto [load, taker] = lightest.top();
    lightest.pop();
    owner[place] = taker;
    lightest.emplace(load + frames[place], taker);
  }
  return owner;
}

}  // namespace

std::int64_t EpisodeList::total_frames() const {
  return std::accumulate(frames.begin(), frames.end(), std::int64_t{0});
}

std::vector<EpisodeList> deal_episodes(const EpisodeList& all, std::int64_t owners) {
  check(all);
  if (owners < 1 || owners >= kNobody)
    fail("the number of owners of a stream's episodes must be positive, found {}", owners);
  const auto owner = owners_of(all.frames, static_cast<std::uint32_t>(owners));
  std::vector<std::size_t> counts(static_cast<std::size_t>(owners));
  for (const std::uint32_t taker : owner)
    if (taker != kNobody) ++counts[taker];
  std::vector<EpisodeList> shards(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    shards[i].episodes.reserve(counts[i]);
    shards[i].frames.reserve(counts[i]);
  }
  for (std::size_t i = 0; i < owner.size(); ++i) {
    if (owner[i] == kNobody) continue;
    shards[owner[i]].episodes.push_back(all.episodes[i]);
    shards[owner[i]].frames.push_back(all.frames[i]);
  }
  return shards;
}

std::vector<EpisodeList> rank_shards(const EpisodeList& selected, std::int64_t dp_world_size) {
  auto shards = deal_episodes(selected, dp_world_size);
  if (shards.front().episodes.empty())
    fail("there is no frame to stream: {} episodes are selected and none has a frame",
         selected.size());
  // Owners get their first episode in turn, so that the last one is the first to go without.
  if (shards.back().episodes.empty()) {
    const auto owning = std::ranges::count_if(
        shards, [](const EpisodeList& shard) { return !shard.episodes.empty(); });
    fail(
        "rank {} owns no streaming episodes: {} episodes with frames are selected for {} "
        "data-parallel ranks; reduce the data-parallel world size to at most {}",
        owning, owning, dp_world_size, owning);
  }
  return shards;
}

std::int64_t lane_count(std::int64_t num_workers, std::int64_t episodes) {
  return std::clamp<std::int64_t>(num_workers, 1, std::max<std::int64_t>(episodes, 1));
}

std::vector<EpisodeList> lane_shards(const EpisodeList& of_rank, std::int64_t num_workers) {
  const auto episodes =
      std::ranges::count_if(of_rank.frames, [](std::int32_t frames) { return frames > 0; });
  if (episodes == 0)
    fail("this rank owns no streaming episodes; reduce the data-parallel world size");
  return deal_episodes(of_rank, lane_count(num_workers, episodes));
}

std::int64_t lane_pool_size(std::optional<std::int64_t> option, std::int64_t lanes) {
  if (option) return *option;
  const std::int64_t whole = kRankPoolSize / lanes, twice_rest = 2 * (kRankPoolSize % lanes);
  const bool up = twice_rest > lanes || (twice_rest == lanes && whole % 2 == 1);
  return std::max<std::int64_t>(1, whole + (up ? 1 : 0));
}

std::uint64_t lane_byte_budget(std::uint64_t rank_bytes, std::int64_t lanes) {
  return std::max<std::uint64_t>(1, rank_bytes / static_cast<std::uint64_t>(lanes));
}

}  // namespace lerobot::streaming
