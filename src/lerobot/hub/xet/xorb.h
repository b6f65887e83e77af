// Xorbs: the objects in which the Xet protocol stores chunks (https://huggingface.co/docs/xet,
// "Xorb Formation & Serialization Format").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lerobot/hub/xet/xet_hash.h"

namespace lerobot::hub::xet {

/// Limits of one xorb. The servers refuse one whose serialised form is larger.
inline constexpr std::uint64_t kLargestXorb = 64 << 20;
inline constexpr std::size_t kMostChunksOfXorb = 8192;

/// A complete one.
struct Xorb {
  XetHash hash;
  std::vector<SizedHash> chunks;
  std::uint64_t content_size = 0;
  /// Chunk after chunk: a header of 8 bytes, then its bytes as they are (no compression: most of
  /// what is published here, videos and weights, doesn't shrink).
  std::string serialized;
};

class XorbBuilder {
 public:
  bool empty() const { return xorb_.chunks.empty(); }
  /// True when a chunk of that size doesn't fit any more.
  bool is_full_for(std::size_t size) const;
  /// Returns the chunk's index in the xorb.
  std::uint32_t add(const XetHash& hash, std::span<const std::uint8_t> bytes);
  /// What was added; the builder begins anew.
  Xorb finish();

 private:
  Xorb xorb_;
};

}  // namespace lerobot::hub::xet
