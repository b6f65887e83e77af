#include "lerobot/streaming/episode_cache.h"

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace lerobot::streaming {
namespace {

using State = EpisodeCache::State;

std::shared_ptr<const FetchedEpisode> episode_of(std::uint64_t bytes) {
  auto episode = std::make_shared<FetchedEpisode>();
  episode->payload_bytes = bytes;
  return episode;
}

/// Fetches what comes next; its payload is a little smaller than reserved, as it is in truth.
EpisodeCache::Entry* fetch_next(EpisodeCache& cache) {
  EpisodeCache::Entry* entry = cache.next_to_fetch();
  if (!entry) return nullptr;
  entry->state = State::kFetching;
  cache.fetched(*entry, episode_of(entry->bytes - 1));
  return entry;
}

const auto kTen = [](std::int64_t) -> std::uint64_t { return 10; };

TEST(EpisodeCache, AnAdmissionWaitsUntilTheLastLeaseOfADrainedEpisodeEnds) {
  EpisodeCache cache(20);
  ASSERT_TRUE(cache.admit(0, 10));
  ASSERT_TRUE(cache.admit(1, 10));
  EpisodeCache::Entry& leased = cache.lease(0);
  cache.lease(0);
  cache.leave(0);
  EXPECT_FALSE(cache.admit(2, 10));
  cache.end_lease(leased);
  EXPECT_FALSE(cache.admit(2, 10));
  cache.end_lease(leased);
  EXPECT_TRUE(cache.admit(2, 10));
  EXPECT_EQ(cache.reserved_bytes(), 20u);
}

TEST(EpisodeCache, WhatIsOnlyWantedAheadMakesRoomForAnAdmission) {
  EpisodeCache cache(30);
  ASSERT_TRUE(cache.admit(0, 10));
  cache.want_ahead(std::vector<std::int64_t>{1, 2, 3}, true, kTen);
  EXPECT_EQ(cache.size(), 3u) << "the third one has no room";
  fetch_next(cache);
  fetch_next(cache);
  EXPECT_TRUE(cache.admit(7, 15)) << "both are dropped, the last one first";
  EXPECT_EQ(cache.reserved_bytes(), 25u);
  EXPECT_TRUE(cache.admit(1, 5));
}

TEST(EpisodeCache, AFetchUnderWayKeepsItsReservation) {
  EpisodeCache cache(20);
  ASSERT_TRUE(cache.admit(0, 10));
  cache.want_ahead(std::vector<std::int64_t>{1}, true, kTen);
  cache.next_to_fetch()->state = State::kFetching;  // episode 0
  EpisodeCache::Entry* ahead = cache.next_to_fetch();
  ahead->state = State::kFetching;
  EXPECT_FALSE(cache.admit(2, 10));
  cache.fetched(*ahead, episode_of(10));
  EXPECT_TRUE(cache.admit(2, 10));
}

TEST(EpisodeCache, PrefetchingReservesNothingWhileAnAdmissionWaits) {
  EpisodeCache cache(25);
  ASSERT_TRUE(cache.admit(0, 10));
  ASSERT_FALSE(cache.admit(1, 20));
  cache.want_ahead(std::vector<std::int64_t>{2}, false, kTen);
  EXPECT_EQ(cache.reserved_bytes(), 10u);
}

TEST(EpisodeCache, NeededEpisodesAreFetchedBeforeThoseThatAreWantedAhead) {
  EpisodeCache cache(100);
  cache.want_ahead(std::vector<std::int64_t>{5, 6}, true, kTen);
  ASSERT_TRUE(cache.admit(9, 10));
  EXPECT_EQ(fetch_next(cache)->episode, 9);
  EXPECT_EQ(fetch_next(cache)->episode, 5);
  EXPECT_EQ(fetch_next(cache)->episode, 6);
  EXPECT_EQ(fetch_next(cache), nullptr);
}

TEST(EpisodeCache, ADrainedEpisodeIsDroppedAlthoughTheBudgetHasRoom) {
  EpisodeCache cache(1000);
  ASSERT_TRUE(cache.admit(0, 10));
  fetch_next(cache);
  EXPECT_EQ(cache.resident_bytes(), 9u);
  cache.leave(0);
  cache.want_ahead({}, true, kTen);
  EXPECT_EQ(cache.resident_bytes(), 0u);
  EXPECT_EQ(cache.reserved_bytes(), 0u);
}

TEST(EpisodeCache, AnEpisodeThatEndsAnEpochAndBeginsTheNextIsFetchedOnce) {
  EpisodeCache cache(1000);
  ASSERT_TRUE(cache.admit(0, 10));
  fetch_next(cache);
  cache.leave(0);
  ASSERT_TRUE(cache.admit(0, 10));
  cache.want_ahead({}, true, kTen);
  EXPECT_EQ(cache.next_to_fetch(), nullptr);
  EXPECT_EQ(cache.resident_bytes(), 9u);
}

TEST(EpisodeCache, AFailureAheadIsTriedOnceMoreWhenTheEpisodeIsNeeded) {
  EpisodeCache cache(100);
  cache.want_ahead(std::vector<std::int64_t>{3}, true, kTen);
  EpisodeCache::Entry* entry = cache.next_to_fetch();
  entry->state = State::kFetching;
  cache.failed(*entry, std::make_exception_ptr(std::runtime_error("cut")));
  EXPECT_EQ(cache.next_to_fetch(), nullptr);
  ASSERT_TRUE(cache.admit(3, 10));
  EXPECT_EQ(cache.next_to_fetch(), entry);
  EXPECT_EQ(entry->error, nullptr);
}

TEST(EpisodeCache, ReservedAndResidentBytesNeverExceedTheBudgetWhateverHappens) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::uint64_t budget = 50 + random() % 100;
    EpisodeCache cache(budget);
    const auto size = [](std::int64_t episode) -> std::uint64_t {
      return 1 + static_cast<std::uint64_t>(episode) * 7 % 49;
    };
    std::set<std::int64_t> residents;
    std::vector<EpisodeCache::Entry*> leases, fetching;
    for (int event = 0; event < 500; ++event) {
      const auto episode = static_cast<std::int64_t>(random() % 40);
      switch (random() % 6) {
        case 0:
          if (!residents.contains(episode) && cache.admit(episode, size(episode)))
            residents.insert(episode);
          break;
        case 1:
          if (!residents.empty()) leases.push_back(&cache.lease(*residents.begin()));
          break;
        case 2:
          if (!leases.empty()) {
            cache.end_lease(*leases.back());
            leases.pop_back();
          }
          break;
        case 3:
          if (!residents.empty()) {
            cache.leave(*residents.begin());
            residents.erase(residents.begin());
          }
          break;
        case 4:
          if (EpisodeCache::Entry* entry = cache.next_to_fetch()) {
            entry->state = State::kFetching;
            fetching.push_back(entry);
          } else if (!fetching.empty()) {
            cache.fetched(*fetching.back(), episode_of(fetching.back()->bytes));
            fetching.pop_back();
          }
          break;
        default:
          cache.want_ahead(std::vector<std::int64_t>{episode, (episode + 1) % 40}, random() % 2,
                           size);
      }
      ASSERT_LE(cache.reserved_bytes(), budget);
      ASSERT_LE(cache.resident_bytes(), cache.reserved_bytes());
    }
  }
}

}  // namespace
}  // namespace lerobot::streaming
