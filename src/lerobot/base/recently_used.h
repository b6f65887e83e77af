// A map that forgets what has not been used for the longest time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>

namespace lerobot {

/// Keeps entries until their weights together exceed `capacity`; the one that was inserted last
/// always stays. Not thread-safe.
template <class Key, class Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::uint64_t capacity) : capacity_(capacity) {}

  /// The entry, which now is the most recently used one; null when there is none. Valid until the
  /// next insert().
  Value* find(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->value;
  }

  /// Adds or replaces an entry and drops old ones.
  Value& insert(const Key& key, Value value, std::uint64_t weight = 1) {
    erase(key);
    entries_.push_front({key, std::move(value), weight});
    by_key_[key] = entries_.begin();
    weight_ += weight;
    while (weight_ > capacity_ && entries_.size() > 1) erase(entries_.back().key);
    return entries_.front().value;
  }

  void erase(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return;
    const auto entry = found->second;
    by_key_.erase(found);
    weight_ -= entry->weight;
    entries_.erase(entry);
  }

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Key key;
    Value value;
    std::uint64_t weight;
  };
  const std::uint64_t capacity_;
  std::uint64_t weight_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, typename std::list<Entry>::iterator> by_key_;
};

}  // namespace lerobot
