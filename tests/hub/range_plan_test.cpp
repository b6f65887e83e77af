#include "lerobot/hub/range_plan.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace lerobot::hub {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// The planner looks at addresses, never at bytes: these are memory that nobody has.
Segment segment(std::uint64_t offset, std::uint64_t size) {
  static std::uint8_t byte;
  return {offset, std::span<std::uint8_t>(&byte, size)};
}

TEST(RangePlan, JoinsWhatIsNear) {
  const auto plan = plan_fetches(
      {segment(10 * kMiB, kMiB), segment(0, 4 * kMiB), segment(4 * kMiB + 1000, kMiB)}, 1);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].first, 0u);
  EXPECT_EQ(plan[0].end, 5 * kMiB + 1000);
  EXPECT_EQ(plan[0].segments.size(), 2u);
  EXPECT_EQ(plan[1].first, 10 * kMiB);
}

TEST(RangePlan, LeavesGapsThatCostMoreThanARequest) {
  const std::uint64_t gap = 512 << 10;
  EXPECT_EQ(plan_fetches({segment(0, 4 * kMiB), segment(4 * kMiB + gap / 4, kMiB)}, 1).size(), 1u);
  EXPECT_EQ(plan_fetches({segment(0, 7 * kMiB), segment(7 * kMiB + gap + 1, kMiB / 4)}, 1).size(),
            2u);
  EXPECT_EQ(plan_fetches({segment(0, 1000), segment(1200, 1000)}, 1).size(), 2u)
      << "200 of 2000 bytes would be wasted";
}

TEST(RangePlan, LeavesWorkForTheOtherConnections) {
  std::vector<Segment> segments;
  for (std::uint64_t i = 0; i < 64; ++i) segments.push_back(segment(i * kMiB, kMiB));
  const auto plan = plan_fetches(segments, 1);
  ASSERT_EQ(plan.size(), 8u);
  for (const PlannedFetch& fetch : plan) EXPECT_EQ(fetch.end - fetch.first, 8 * kMiB);
}

// facts: from 16 MiB, parts = min(option, length // 8 MiB), step = ceil(length / parts).
TEST(RangePlan, SplitsLargeRangesAsTheReferenceDoes) {
  const auto parts = [](std::uint64_t size, std::size_t subranges) {
    std::vector<std::uint64_t> sizes;
    for (const PlannedFetch& fetch : plan_fetches({segment(5, size)}, subranges))
      sizes.push_back(fetch.end - fetch.first);
    return sizes;
  };
  using Sizes = std::vector<std::uint64_t>;
  EXPECT_EQ(parts(16 * kMiB - 1, 8), Sizes{16 * kMiB - 1});
  EXPECT_EQ(parts(16 * kMiB, 8), (Sizes{8 * kMiB, 8 * kMiB}));
  EXPECT_EQ(parts(16 * kMiB, 1), Sizes{16 * kMiB});
  EXPECT_EQ(parts(100 * kMiB, 3), (Sizes{34952534, 34952534, 34952532}));
  EXPECT_EQ(parts(25 * kMiB + 1, 8), (Sizes{8738134, 8738134, 8738133}));
}

TEST(RangePlan, HoldsEveryByteOnceAndWastesLittleForAnyRanges) {
  std::mt19937_64 generator(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::uint8_t> memory(40'000);
    std::vector<Segment> segments;
    std::uint64_t used = 0;
    const std::uint64_t spread = 1ULL << (4 + generator() % 15);
    while (used < memory.size() && segments.size() < 60) {
      const std::uint64_t size = std::min<std::uint64_t>(generator() % 2'000, memory.size() - used);
      segments.push_back({generator() % spread, std::span(memory).subspan(used, size)});
      used += size;
    }
    std::vector<bool> wanted(spread + 2'000);
    for (const Segment& s : segments)
      for (std::uint64_t at = s.offset; at < s.end(); ++at) wanted[at] = true;
    const auto count = static_cast<std::uint64_t>(std::count(wanted.begin(), wanted.end(), true));

    std::uint64_t fetched = 0;
    std::uint64_t delivered = 0;
    for (const PlannedFetch& fetch : plan_fetches(segments, 4)) {
      fetched += fetch.end - fetch.first;
      for (const Segment& s : fetch.segments) {
        EXPECT_LE(fetch.first, s.offset);
        EXPECT_LE(s.end(), fetch.end);
        delivered += s.out.size();
      }
    }
    EXPECT_EQ(delivered, used);
    EXPECT_LE(fetched * 16, count * 17) << "round " << round;
  }
}

}  // namespace
}  // namespace lerobot::hub
