// The episodes of an epoch that are not admitted yet, in their order, and which of them is next.
//
// Episodes are known here by their entry: a number in the caller's lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace lerobot::streaming {

/// A growing list of sizes from which elements are removed in any order; finds the first one that
/// is small enough. Each node of a tree holds the least of 64 below it, so that all steps cost a
/// few scans of 64 numbers.
class FirstFit {
 public:
  std::size_t size() const { return levels_.front().size(); }
  /// `bytes` is less than 2^63.
  void append(std::uint64_t bytes);
  std::uint64_t operator[](std::size_t i) const { return levels_.front()[i]; }
  void remove(std::size_t i);
  /// The first element at or after `from` of at most `limit` (less than 2^63) bytes.
  std::optional<std::size_t> first(std::uint64_t limit, std::size_t from = 0) const;

 private:
  static constexpr std::size_t kFan = 64;
  static constexpr std::uint64_t kRemoved = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t least_below(std::size_t level, std::size_t node) const;

  std::vector<std::vector<std::uint64_t>> levels_{1};  // the elements, then the minima over them
};

/// Admission takes the first episode that fits, from the front. Those that were looked at and
/// passed over stay in front; their sizes are kept, so that a full budget does not mean a look at
/// every episode after every departure.
class PendingEpisodes {
 public:
  struct Admission {
    std::int32_t entry = 0;
    std::uint64_t bytes = 0;
  };

  PendingEpisodes() = default;
  explicit PendingEpisodes(std::vector<std::int32_t> order) : order_(std::move(order)) {}

  /// Removes the first episode of at most `room` (less than 2^63) bytes and returns it. `size` is
  /// asked once for each entry that is looked at.
  template <class Size>
  std::optional<Admission> take(std::uint64_t room, const Size& size) {
    if (const auto place = passed_.first(room)) return take_passed(*place);
    for (; seen_ < order_.size(); ++seen_) {
      const std::int32_t entry = order_[seen_];
      const std::uint64_t bytes = size(entry);
      if (bytes <= room) {
        ++seen_;
        return Admission{entry, bytes};
      }
      pass_over(entry, bytes);
    }
    return std::nullopt;
  }

  /// The first `count` entries.
  std::vector<std::int32_t> front(std::size_t count) const;

 private:
  Admission take_passed(std::size_t place);
  void pass_over(std::int32_t entry, std::uint64_t bytes);

  // order_[0, passed_.size()) are those that were passed over, moved together; order_[seen_, end)
  // were never looked at.
  std::vector<std::int32_t> order_;
  std::size_t seen_ = 0;
  FirstFit passed_;
};

}  // namespace lerobot::streaming
