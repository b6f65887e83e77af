// The serialised forms of Xet storage that clients post: xorbs (chunks one after the other) and
// shards (which chunks make a file). https://huggingface.co/docs/xet
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lerobot::test_server {

inline constexpr std::size_t kChunkHeader = 8;

struct XorbChunk {
  std::uint64_t begin = 0;  ///< of its header in the xorb
  std::uint64_t end = 0;
  std::uint32_t unpacked = 0;  ///< bytes of content
  bool is_plain = false;       ///< they lie there as they are, behind the header
};

/// The chunks of a xorb, with or without the footer behind them. Throws Error when one doesn't hold
/// what its header says.
std::vector<XorbChunk> parse_xorb(std::string_view xorb);
/// The content of a chunk. Throws Error when it can't be unpacked to the size in its header.
std::string unpack_chunk(std::string_view chunk);
/// The header of a chunk that lies there as it is.
std::string plain_chunk_header(std::uint32_t size);

/// Chunks [first, last) of a xorb.
struct ShardSegment {
  std::string xorb;
  std::uint32_t unpacked = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};
struct ShardFile {
  std::string hash;
  std::vector<ShardSegment> segments;
  std::vector<std::string> verification;  ///< a hash for each segment, or none at all
  std::string sha256;                     ///< empty: not told
};
struct ShardChunk {
  std::string hash;
  std::uint32_t begin = 0;  ///< of its content in that of the xorb
  std::uint32_t size = 0;
};
struct ShardXorb {
  std::string hash;
  std::uint32_t unpacked = 0;
  std::vector<ShardChunk> chunks;
};
struct Shard {
  std::vector<ShardFile> files;
  std::vector<ShardXorb> xorbs;
};

/// Throws Error naming the record that is cut off or makes no sense.
Shard parse_shard(std::string_view bytes);

}  // namespace lerobot::test_server
