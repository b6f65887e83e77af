// The episodes that one worker holds or has asked for, within its byte budget.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>

#include "lerobot/streaming/episode_reader.h"

namespace lerobot::streaming {

/// Bookkeeping only: it decides what is reserved and what is dropped; others fetch and decode. An
/// episode reserves its exact size before it is asked for and until nothing needs it any more:
/// - it is resident in the worker's pool, or
/// - a sample of it waits for its decode (a lease), or
/// - it will be resident soon and there was room to spare.
/// The last kind makes room for the first. Not thread-safe: the loader's lock guards it.
class EpisodeCache {
 public:
  enum class State { kQueued, kFetching, kReady, kFailed };

  struct Entry {
    std::int64_t episode = 0;
    std::uint64_t bytes = 0;  ///< reserved
    State state = State::kQueued;
    bool resident = false;
    bool wanted_ahead = false;
    std::int64_t leases = 0;
    std::uint64_t order = 0;  ///< when it was reserved, counted up
    std::shared_ptr<const FetchedEpisode> fetched;
    std::exception_ptr error;

    bool is_needed() const { return resident || leases > 0; }
  };

  explicit EpisodeCache(std::uint64_t budget) : budget_(budget) {}

  /// For an episode that the pool has admitted, which therefore fits the budget. False when there
  /// is no room until a lease or a fetch ends. One that could not be fetched ahead is queued once
  /// more.
  bool admit(std::int64_t episode, std::uint64_t bytes);
  /// The episode has left the pool. Its entry stays until the next want_ahead().
  void leave(std::int64_t episode);
  /// `episodes` will be admitted next, in this order: reserves those that there is room for, up to
  /// the first that there is none for (none at all unless `may_reserve`), and drops what is neither
  /// needed nor among them. `size` gives an episode's bytes.
  template <class Size>
  void want_ahead(std::span<const std::int64_t> episodes, bool may_reserve, Size&& size) {
    for (auto& [episode, entry] : entries_) entry.wanted_ahead = false;
    bool has_room = may_reserve;
    for (const std::int64_t episode : episodes) {
      const auto found = entries_.find(episode);
      if (found != entries_.end())
        found->second.wanted_ahead = true;
      else if (has_room)
        has_room = reserve_ahead(episode, size(episode));
    }
    drop_unneeded();
  }

  /// A sample of the episode waits for its decode, until end_lease().
  Entry& lease(std::int64_t episode);
  /// May drop the entry.
  void end_lease(Entry& entry);

  /// The entry that is to be fetched next: the needed one that was reserved first, else the first
  /// one that is wanted ahead; null when there is none.
  Entry* next_to_fetch();
  /// The end of a fetch: with its episode or its error. May drop the entry.
  void fetched(Entry& entry, std::shared_ptr<const FetchedEpisode> episode);
  void failed(Entry& entry, std::exception_ptr error);

  std::uint64_t budget() const { return budget_; }
  /// Of all entries.
  std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  /// Compressed payload in memory.
  std::uint64_t resident_bytes() const { return resident_bytes_; }
  std::size_t size() const { return entries_.size(); }

 private:
  bool make_room(std::uint64_t bytes);
  bool reserve_ahead(std::int64_t episode, std::uint64_t bytes);
  Entry& reserve(std::int64_t episode, std::uint64_t bytes);
  std::map<std::int64_t, Entry>::iterator drop(std::map<std::int64_t, Entry>::iterator entry);
  void drop_if_unneeded(Entry& entry);
  void drop_unneeded();

  const std::uint64_t budget_;
  std::uint64_t reserved_bytes_ = 0;
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t reservations_ = 0;
  std::map<std::int64_t, Entry> entries_;
};

}  // namespace lerobot::streaming
