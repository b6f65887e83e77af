// Decoders shared by threads: kept open between calls, bounded in number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>

#include "lerobot/video/decoder.h"
#include "lerobot/video/frame_request.h"
#include "lerobot/video/video_file.h"

namespace lerobot::video {

/// Keeps up to `capacity` decoders open; the least recently used one makes room. A call leases one
/// for itself, so threads never wait for each other; while more than `capacity` calls run at once
/// there are as many decoders as calls, and the surplus closes when they end. Thread-safe.
class DecoderCache {
 public:
  /// What an idle decoder is left with.
  enum class Idle {
    kKeepsVideo,   ///< it may go on where it stands, and keeps the video alive
    kKeepsNothing  ///< whoever fetched a video decides when its bytes are freed
  };

  explicit DecoderCache(std::size_t capacity, Idle idle = Idle::kKeepsVideo);
  DecoderCache(const DecoderCache&) = delete;
  DecoderCache& operator=(const DecoderCache&) = delete;

  /// Decoder::decode() on the decoder of `source` whose position suits best; opens one if there is
  /// none. Throws what Decoder throws.
  void decode(const std::shared_ptr<const PacketSource>& source, PixelLayout layout,
              std::span<const FrameRequest> requests, double tolerance_s);

  /// What the cache has done so far.
  struct Counters {
    std::size_t decoders = 0;        // open now, idle or leased
    std::uint64_t opened = 0;        // codec contexts opened
    std::uint64_t rebound = 0;       // idle decoders that turned to another video
    std::uint64_t packets_sent = 0;  // coded frames decoded
  };
  Counters counters() const;

 private:
  std::unique_ptr<Decoder> lease(const std::shared_ptr<const PacketSource>& source,
                                 PixelLayout layout, std::size_t first_sample);
  void give_back(std::unique_ptr<Decoder> decoder, std::uint64_t sent_before);

  const std::size_t capacity_;
  const Idle idle_keeps_;
  mutable std::mutex mutex_;
  std::list<std::unique_ptr<Decoder>> idle_;  // most recently used first
  Counters counters_;
};

}  // namespace lerobot::video
