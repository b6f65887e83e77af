// Hashes of the Xet protocol (https://huggingface.co/docs/xet, "Hashing"; draft-denis-xet, section
// 6): BLAKE3 under one key for each purpose, and the tree that makes one hash of many.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>

namespace lerobot::hub::xet {

struct XetHash {
  std::array<std::uint8_t, 32> bytes{};
  auto operator<=>(const XetHash&) const = default;

  /// 64 hexadecimal digits, in the protocol's own order: those of four little-endian numbers.
  std::string hex() const;
};

struct XetHashHasher {
  std::size_t operator()(const XetHash& hash) const {
    std::size_t value;
    std::memcpy(&value, hash.bytes.data(), sizeof value);
    return value;
  }
};

/// A chunk, or a node above chunks, and how many bytes of content it stands for.
struct SizedHash {
  XetHash hash;
  std::uint64_t size = 0;
};

/// Of a chunk's bytes.
XetHash chunk_hash(std::span<const std::uint8_t> bytes);
/// Of a xorb: the root of the tree over its chunks. The number of a node's children, 2 to 9,
/// follows from their hashes. Of no chunks: zeros.
XetHash xorb_hash(std::span<const SizedHash> chunks);
/// Of a file: the same root, hashed once more. Of an empty file: zeros.
XetHash file_hash(std::span<const SizedHash> chunks);
/// The same of a whole content, which is cut into chunks here. It is what a Bucket's listing says
/// of a file.
XetHash content_hash(std::span<const std::uint8_t> content);
/// Proves, in a shard, that the uploader has the chunks of a range.
XetHash range_hash(std::span<const SizedHash> chunks);

/// What a shard holds of a file's SHA-256: the protocol reads its hexadecimal digits as those of a
/// XetHash. `hex` has 64 of them.
XetHash sha256_as_xet_hash(const std::string& hex);

}  // namespace lerobot::hub::xet
