#include "lerobot/hub/range_plan.h"

#include <algorithm>

namespace lerobot::hub {
namespace {

// A request costs one latency before its first byte; a gap costs its bytes. Both cost the same when
//   gap = latency * bandwidth,
// for 30 ms and 200 Mbit/s a connection (a data centre across the country): 0.030 s * 25 MB/s =
// 750 kB. A smaller gap is cheaper to fetch than to skip. Rounded down to a power of two, as a gap
// also spends what all connections share.
constexpr std::uint64_t kLargestGap = 512 << 10;

// Gaps must not add up: the bytes that nobody wants stay below this share of the wanted ones.
constexpr std::uint64_t kWasteDivisor = 16;

// Joining saves a latency per joined range, and takes work from the other connections. With
//   length = 10 * latency * bandwidth,
// 7.5 MB, waiting is under a tenth of a request's time; from there on parallel requests win.
constexpr std::uint64_t kLongestJoined = 8 << 20;

// Sub-ranges of one large range, as LeRobot's reader makes them.
constexpr std::uint64_t kSplitFrom = 16 << 20;
constexpr std::uint64_t kSmallestPart = 8 << 20;

class Joined {
 public:
  explicit Joined(const Segment& segment) { take(segment); }

  bool may_take(const Segment& segment) const {
    const std::uint64_t end = std::max(fetch_.end, segment.end());
    const std::uint64_t gap = segment.offset > fetch_.end ? segment.offset - fetch_.end : 0;
    const std::uint64_t wanted = end - fetch_.first - gaps_ - gap;
    if (end == fetch_.end) return true;  // lies inside
    return gap <= kLargestGap && (gaps_ + gap) * kWasteDivisor <= wanted &&
           end - fetch_.first <= kLongestJoined;
  }

  void take(const Segment& segment) {
    if (fetch_.segments.empty()) {
      fetch_.first = fetch_.end = segment.offset;
    } else if (segment.offset > fetch_.end) {
      gaps_ += segment.offset - fetch_.end;
    }
    fetch_.end = std::max(fetch_.end, segment.end());
    fetch_.segments.push_back(segment);
  }

  PlannedFetch release() { return std::move(fetch_); }

 private:
  PlannedFetch fetch_;
  std::uint64_t gaps_ = 0;
};

/// The part [first, end) of a fetch.
PlannedFetch slice(const PlannedFetch& fetch, std::uint64_t first, std::uint64_t end) {
  PlannedFetch part{.first = first, .end = end, .segments = {}};
  for (const Segment& segment : fetch.segments) {
    const std::uint64_t from = std::max(first, segment.offset);
    const std::uint64_t to = std::min(end, segment.end());
    if (from < to)
      part.segments.push_back({from, segment.out.subspan(from - segment.offset, to - from)});
  }
  return part;
}

void append_split(std::vector<PlannedFetch>& out, PlannedFetch fetch, std::size_t subranges) {
  const std::uint64_t length = fetch.end - fetch.first;
  const std::uint64_t parts = std::min<std::uint64_t>(subranges, length / kSmallestPart);
  if (length < kSplitFrom || parts <= 1) {
    out.push_back(std::move(fetch));
    return;
  }
  const std::uint64_t step = (length + parts - 1) / parts;
  for (std::uint64_t first = fetch.first; first < fetch.end; first += step)
    out.push_back(slice(fetch, first, first + std::min(step, fetch.end - first)));
}

}  // namespace

std::vector<PlannedFetch> plan_fetches(std::vector<Segment> segments, std::size_t subranges) {
  std::erase_if(segments, [](const Segment& segment) { return segment.out.empty(); });
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment& a, const Segment& b) { return a.offset < b.offset; });
  std::vector<PlannedFetch> out;
  for (std::size_t i = 0; i < segments.size();) {
    Joined joined(segments[i++]);
    while (i < segments.size() && joined.may_take(segments[i])) joined.take(segments[i++]);
    append_split(out, joined.release(), subranges);
  }
  return out;
}

}  // namespace lerobot::hub
