// Shards: what tells a Xet server which chunks of which xorbs make a file
// (https://huggingface.co/docs/xet, "Shard File Format").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lerobot/hub/xet/xet_hash.h"

namespace lerobot::hub::xet {

/// Chunks [first, last) of a xorb: a piece of a file.
struct Term {
  XetHash xorb;
  std::uint64_t size = 0;  ///< in bytes of content
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  XetHash range;  ///< range_hash() of those chunks
};

struct ShardFile {
  XetHash hash;
  std::vector<Term> terms;  ///< in the order of the content
  XetHash sha256;           ///< sha256_as_xet_hash()
};

struct ShardXorb {
  XetHash hash;
  std::vector<SizedHash> chunks;
  std::uint64_t content_size = 0;
};

/// The body of an upload: header, files, xorbs; the footer and its look-up tables are the server's
/// business.
std::string serialize_shard(std::span<const ShardFile> files, std::span<const ShardXorb> xorbs);

}  // namespace lerobot::hub::xet
