#include "lerobot/streaming/stream_planner.h"

#include <algorithm>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"

namespace lerobot::streaming {

EpisodeList StreamSource::episode_list() const {
  EpisodeList list{.episodes = episodes, .frames = {}};
  for (const std::int64_t episode : episodes)
    list.frames.push_back(
        checked_cast<std::int32_t>(metadata->episodes().length(episode), "length of an episode"));
  return list;
}

StreamPlanner::StreamPlanner(const StreamSource& source, StreamPlan plan)
    : reader_(source.reader), plan_(std::move(plan)), step_(plan_.step) {
  const VirtualTopology& topology = plan_.topology;
  const EpisodeList all = source.episode_list();
  steps_per_epoch_ = (all.total_frames() + topology.global_batch() - 1) / topology.global_batch();
  const std::vector<EpisodeList> of_ranks = rank_shards(all, topology.ranks());
  const auto [first, last] = topology.ranks_of(plan_.rank, plan_.world);
  first_rank_ = first;
  for (std::int64_t rank = first; rank <= last; ++rank)
    make_lanes_of_rank(rank, of_ranks[static_cast<std::size_t>(rank)]);
}

void StreamPlanner::make_lanes_of_rank(std::int64_t rank, const EpisodeList& episodes) {
  const VirtualTopology& topology = plan_.topology;
  const CoveragePoolOptions options = lane_options(plan_.settings, topology.lanes(rank));
  require_fit_budget(
      episodes.episodes,
      [&](std::int64_t episode) { return reader_->reserved_bytes_bound(episode); },
      [&](std::int64_t episode) { return reader_->reserved_bytes(episode); }, options.byte_budget);
  const LaneProgress progress = topology.progress(rank, plan_.step);
  std::vector<EpisodeList> of_lanes = lane_shards(episodes, topology.lanes(rank));
  check_internal(of_lanes.size() == progress.samples.size(), "every lane has episodes");
  first_lane_of_rank_.push_back(lanes_.size());
  for (std::size_t lane = 0; lane < of_lanes.size(); ++lane)
    lanes_.push_back(make_lane(rank, static_cast<std::int64_t>(lane), std::move(of_lanes[lane]),
                               options, progress.samples[lane]));
}

std::unique_ptr<Lane> StreamPlanner::make_lane(std::int64_t rank, std::int64_t number,
                                               EpisodeList episodes,
                                               const CoveragePoolOptions& options,
                                               std::int64_t delivered) {
  CoveragePool pool(
      episodes.episodes, std::move(episodes.frames),
      [reader = reader_](std::int64_t episode) { return reader->reserved_bytes(episode); },
      options);
  pool.skip(delivered);
  auto lane = std::make_unique<Lane>(Lane{.rank = rank,
                                          .number = number,
                                          .pool_size = options.pool_size,
                                          .pool = std::move(pool),
                                          .cache = EpisodeCache(options.byte_budget),
                                          .waiting = {}});
  apply_changes(*lane);
  return lane;
}

Lane& StreamPlanner::lane_of(const BatchPart& part) {
  const std::size_t first = first_lane_of_rank_[static_cast<std::size_t>(part.rank - first_rank_)];
  return *lanes_[first + static_cast<std::size_t>(part.lane)];
}

std::optional<StreamPlanner::Sample> StreamPlanner::next() {
  while (true) {
    if (part_ == parts_.size()) {
      parts_ = plan_.topology.parts(step_++, plan_.rank, plan_.world);
      part_ = 0;
    }
    const BatchPart& part = parts_[part_];
    Lane& lane = lane_of(part);
    if (!admit_waiting(lane)) return std::nullopt;
    const Anchor anchor = lane.pool.next();
    const std::int64_t row = row_++;
    if (row_ == plan_.topology.batch_size()) {
      ++part_;
      row_ = 0;
    }
    // A batch of the lane that several processes share is drawn by each of them.
    const bool is_ours = row >= part.first_row && row < part.first_row + part.rows;
    const Sample sample{&lane, is_ours ? &lane.cache.lease(anchor.episode) : nullptr, anchor};
    apply_changes(lane);
    if (is_ours) return sample;
  }
}

/// What the pool's last draws changed.
void StreamPlanner::apply_changes(Lane& lane) {
  const auto changes = lane.pool.take_changes();
  if (changes.empty()) return;
  for (const CoveragePool::Change& change : changes) {
    if (change.admitted)
      lane.waiting.push_back(change);
    else
      lane.cache.leave(change.episode);
  }
  admit_waiting(lane);
  want_ahead(lane);
  has_news_ = true;
}

bool StreamPlanner::admit_waiting(Lane& lane) {
  while (!lane.waiting.empty()) {
    const CoveragePool::Change& change = lane.waiting.front();
    if (!lane.cache.admit(change.episode, change.bytes)) return false;
    lane.waiting.pop_front();
    has_news_ = true;
  }
  return true;
}

/// The episodes that come next, as many as leave the number of episodes at pool size and prefetch
/// together: at the end of an epoch, when the pool runs empty, they are the next epoch's.
void StreamPlanner::want_ahead(Lane& lane) {
  const auto residents = static_cast<std::int64_t>(lane.pool.residents().size());
  const std::int64_t count = plan_.prefetch_episodes + lane.pool_size - residents;
  lane.cache.want_ahead(lane.pool.upcoming(std::max<std::int64_t>(0, count)), lane.waiting.empty(),
                        [&](std::int64_t episode) { return reader_->reserved_bytes(episode); });
}

StreamPlanner::Wanted StreamPlanner::next_to_fetch() {
  Wanted next;
  for (const auto& lane : lanes_) {
    EpisodeCache::Entry* entry = lane->cache.next_to_fetch();
    if (!entry) continue;
    const bool is_before = !next.entry || (entry->is_needed() != next.entry->is_needed()
                                               ? entry->is_needed()
                                               : entry->order < next.entry->order);
    if (is_before) next = {lane.get(), entry};
  }
  return next;
}

std::uint64_t StreamPlanner::reserved_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& lane : lanes_) bytes += lane->cache.reserved_bytes();
  return bytes;
}

std::uint64_t StreamPlanner::resident_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& lane : lanes_) bytes += lane->cache.resident_bytes();
  return bytes;
}

}  // namespace lerobot::streaming
