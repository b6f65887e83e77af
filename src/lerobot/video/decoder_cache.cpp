#include "lerobot/video/decoder_cache.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace lerobot::video {

DecoderCache::DecoderCache(std::size_t capacity, Idle idle)
    : capacity_(std::max<std::size_t>(capacity, 1)), idle_keeps_(idle) {}

void DecoderCache::decode(const std::shared_ptr<const PacketSource>& source, PixelLayout layout,
                          std::span<const FrameRequest> requests, double tolerance_s) {
  if (requests.empty()) return;
  // Requests of one call are near each other: the first in decode order stands for all of them.
  std::size_t first_sample = std::numeric_limits<std::size_t>::max();
  for (const FrameRequest& request : requests)
    first_sample = std::min(first_sample, find_sample(*source, request.time_s, tolerance_s));

  std::unique_ptr<Decoder> decoder = lease(source, layout, first_sample);
  const std::uint64_t sent_before = decoder->packets_sent();
  try {
    decoder->decode(requests, tolerance_s);
  } catch (...) {
    give_back(std::move(decoder), sent_before);
    throw;
  }
  give_back(std::move(decoder), sent_before);
}

std::unique_ptr<Decoder> DecoderCache::lease(const std::shared_ptr<const PacketSource>& source,
                                             PixelLayout layout, std::size_t first_sample) {
  std::unique_ptr<Decoder> candidate;  // an idle one that turns to `source` or makes room
  bool rebound = false;
  {
    const std::lock_guard lock(mutex_);
    auto best = idle_.end();
    std::size_t best_distance = std::numeric_limits<std::size_t>::max();
    for (auto i = idle_.begin(); i != idle_.end(); ++i) {
      if ((*i)->source() != source || (*i)->layout() != layout) continue;
      const std::size_t distance = (*i)->distance_to(first_sample);
      if (distance < best_distance) {
        best = i;
        best_distance = distance;
      }
    }
    if (best != idle_.end()) {
      std::unique_ptr<Decoder> decoder = std::move(*best);
      idle_.erase(best);
      return decoder;
    }
    const bool is_full = counters_.decoders >= capacity_ && !idle_.empty();
    // The least recently used one that suits, else the least recently used one. Without a video of
    // its own one turns to another even if there is room for more.
    const auto suitable =
        std::find_if(idle_.rbegin(), idle_.rend(), [&](const std::unique_ptr<Decoder>& decoder) {
          return (is_full || !decoder->source()) && decoder->layout() == layout &&
                 decoder->suits(*source);
        });
    rebound = suitable != idle_.rend();
    if (rebound || is_full) {
      const auto chosen = rebound ? std::prev(suitable.base()) : std::prev(idle_.end());
      candidate = std::move(*chosen);
      idle_.erase(chosen);
    } else {
      ++counters_.decoders;
    }
    ++(rebound ? counters_.rebound : counters_.opened);
  }
  if (rebound) {
    candidate->rebind(source);
    return candidate;
  }
  candidate.reset();
  try {
    return std::make_unique<Decoder>(source, layout);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --counters_.decoders;
    --counters_.opened;
    throw;
  }
}

void DecoderCache::give_back(std::unique_ptr<Decoder> decoder, std::uint64_t sent_before) {
  std::unique_ptr<Decoder> closing;  // closed after the lock is released
  if (idle_keeps_ == Idle::kKeepsNothing) decoder->detach();
  const std::lock_guard lock(mutex_);
  counters_.packets_sent += decoder->packets_sent() - sent_before;
  idle_.push_front(std::move(decoder));
  if (counters_.decoders > capacity_) {
    closing = std::move(idle_.back());
    idle_.pop_back();
    --counters_.decoders;
  }
}

DecoderCache::Counters DecoderCache::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace lerobot::video
