#include "lerobot/streaming/episode_cache.h"

#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::streaming {

bool EpisodeCache::admit(std::int64_t episode, std::uint64_t bytes) {
  const auto found = entries_.find(episode);
  if (found != entries_.end()) {
    Entry& entry = found->second;
    entry.resident = true;
    if (entry.state == State::kFailed) {
      entry.state = State::kQueued;
      entry.error = nullptr;
    }
    return true;
  }
  check_internal(bytes <= budget_, "the pool admits no episode that is larger than its budget");
  if (!make_room(bytes)) return false;
  reserve(episode, bytes).resident = true;
  return true;
}

void EpisodeCache::leave(std::int64_t episode) {
  const auto found = entries_.find(episode);
  check_internal(found != entries_.end(), "only a resident episode leaves");
  found->second.resident = false;
}

EpisodeCache::Entry& EpisodeCache::lease(std::int64_t episode) {
  const auto found = entries_.find(episode);
  check_internal(found != entries_.end(), "only a resident episode is drawn from");
  ++found->second.leases;
  return found->second;
}

void EpisodeCache::end_lease(Entry& entry) {
  --entry.leases;
  drop_if_unneeded(entry);
}

EpisodeCache::Entry* EpisodeCache::next_to_fetch() {
  Entry* next = nullptr;
  for (auto& [episode, entry] : entries_) {
    if (entry.state != State::kQueued) continue;
    const bool is_before =
        !next ||
        (entry.is_needed() != next->is_needed() ? entry.is_needed() : entry.order < next->order);
    if (is_before) next = &entry;
  }
  return next;
}

void EpisodeCache::fetched(Entry& entry, std::shared_ptr<const FetchedEpisode> episode) {
  check_internal(episode->payload_bytes <= entry.bytes, "an episode fits its reservation");
  entry.state = State::kReady;
  resident_bytes_ += episode->payload_bytes;
  entry.fetched = std::move(episode);
  drop_if_unneeded(entry);
}

void EpisodeCache::failed(Entry& entry, std::exception_ptr error) {
  entry.state = State::kFailed;
  entry.error = std::move(error);
  drop_if_unneeded(entry);
}

/// Drops what is only wanted ahead, the latest first, until `bytes` more fit.
bool EpisodeCache::make_room(std::uint64_t bytes) {
  while (bytes > budget_ - reserved_bytes_) {
    auto latest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->second.is_needed() || entry->second.state == State::kFetching) continue;
      if (latest == entries_.end() || entry->second.order > latest->second.order) latest = entry;
    }
    if (latest == entries_.end()) return false;
    drop(latest);
  }
  return true;
}

bool EpisodeCache::reserve_ahead(std::int64_t episode, std::uint64_t bytes) {
  if (bytes > budget_ - reserved_bytes_) return false;
  reserve(episode, bytes).wanted_ahead = true;
  return true;
}

EpisodeCache::Entry& EpisodeCache::reserve(std::int64_t episode, std::uint64_t bytes) {
  Entry& entry = entries_[episode];
  entry.episode = episode;
  entry.bytes = bytes;
  entry.order = reservations_++;
  reserved_bytes_ += bytes;
  return entry;
}

std::map<std::int64_t, EpisodeCache::Entry>::iterator EpisodeCache::drop(
    std::map<std::int64_t, Entry>::iterator entry) {
  reserved_bytes_ -= entry->second.bytes;
  if (entry->second.fetched) resident_bytes_ -= entry->second.fetched->payload_bytes;
  return entries_.erase(entry);
}

void EpisodeCache::drop_if_unneeded(Entry& entry) {
  if (entry.is_needed() || entry.wanted_ahead || entry.state == State::kFetching) return;
  drop(entries_.find(entry.episode));
}

void EpisodeCache::drop_unneeded() {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool is_needed = entry->second.is_needed() || entry->second.wanted_ahead ||
                           entry->second.state == State::kFetching;
    entry = is_needed ? std::next(entry) : drop(entry);
  }
}

}  // namespace lerobot::streaming
