#include "lerobot/streaming/pending_episodes.h"

#include <algorithm>

namespace lerobot::streaming {

// --- FirstFit -----------------------------------------------------------------------------------

std::uint64_t FirstFit::least_below(std::size_t level, std::size_t node) const {
  const auto& below = levels_[level - 1];
  const std::size_t end = std::min(below.size(), (node + 1) * kFan);
  return *std::min_element(below.begin() + static_cast<std::ptrdiff_t>(node * kFan),
                           below.begin() + static_cast<std::ptrdiff_t>(end));
}

void FirstFit::append(std::uint64_t bytes) {
  std::size_t node = size();
  for (auto& level : levels_) {
    if (node == level.size())
      level.push_back(bytes);
    else
      level[node] = std::min(level[node], bytes);
    node /= kFan;
  }
  if (levels_.back().size() <= kFan) return;
  levels_.emplace_back();  // The top has at most kFan nodes.
  for (const std::size_t top : {0, 1})
    levels_.back().push_back(least_below(levels_.size() - 1, top));
}

void FirstFit::remove(std::size_t i) {
  levels_.front()[i] = kRemoved;
  for (std::size_t level = 1; level < levels_.size(); ++level) {
    i /= kFan;
    levels_[level][i] = least_below(level, i);
  }
}

std::optional<std::size_t> FirstFit::first(std::uint64_t limit, std::size_t from) const {
  std::size_t level = 0, i = from;
  while (true) {  // Up, until a group has a small enough element ...
    const auto& values = levels_[level];
    const std::size_t end = std::min(values.size(), (i / kFan + 1) * kFan);
    while (i < end && values[i] > limit) ++i;
    if (i < end) break;
    if (++level == levels_.size()) return std::nullopt;
    i = (i + kFan - 1) / kFan;
  }
  while (level > 0) {  // ... and down to it.
    const auto& values = levels_[--level];
    i *= kFan;
    while (values[i] > limit) ++i;
  }
  return i;
}

// --- PendingEpisodes ----------------------------------------------------------------------------

PendingEpisodes::Admission PendingEpisodes::take_passed(std::size_t place) {
  const Admission admission{order_[place], passed_[place]};
  passed_.remove(place);
  return admission;
}

void PendingEpisodes::pass_over(std::int32_t entry, std::uint64_t bytes) {
  // The list of those passed over never outgrows the part of the order that was looked at.
  order_[passed_.size()] = entry;
  passed_.append(bytes);
}

std::vector<std::int32_t> PendingEpisodes::front(std::size_t count) const {
  constexpr std::uint64_t kAny = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int32_t> entries;
  for (auto place = passed_.first(kAny); place && entries.size() < count;
       place = passed_.first(kAny, *place + 1))
    entries.push_back(order_[*place]);
  for (std::size_t i = seen_; i < order_.size() && entries.size() < count; ++i)
    entries.push_back(order_[i]);
  return entries;
}

}  // namespace lerobot::streaming
