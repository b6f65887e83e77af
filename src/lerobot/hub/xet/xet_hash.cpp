#include "lerobot/hub/xet/xet_hash.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "lerobot/base/blake3.h"
#include "lerobot/base/error.h"
#include "lerobot/hub/xet/chunking.h"

namespace lerobot::hub::xet {
namespace {

constexpr Blake3Key kChunkKey = {0x66, 0x97, 0xf5, 0x77, 0x5b, 0x95, 0x50, 0xde, 0x31, 0x35, 0xcb,
                                 0xac, 0xa5, 0x97, 0x18, 0x1c, 0x9d, 0xe4, 0x21, 0x10, 0x9b, 0xeb,
                                 0x2b, 0x58, 0xb4, 0xd0, 0xb0, 0x4b, 0x93, 0xad, 0xf2, 0x29};
constexpr Blake3Key kNodeKey = {0x01, 0x7e, 0xc5, 0xc7, 0xa5, 0x47, 0x29, 0x96, 0xfd, 0x94, 0x66,
                                0x66, 0xb4, 0x8a, 0x02, 0xe6, 0x5d, 0xdd, 0x53, 0x6f, 0x37, 0xc7,
                                0x6d, 0xd2, 0xf8, 0x63, 0x52, 0xe6, 0x4a, 0x53, 0x71, 0x3f};
constexpr Blake3Key kRangeKey = {0x7f, 0x18, 0x57, 0xd6, 0xce, 0x56, 0xed, 0x66, 0x12, 0x7f, 0xf9,
                                 0x13, 0xe7, 0xa5, 0xc3, 0xf3, 0xa4, 0xcd, 0x26, 0xd5, 0xb5, 0xdb,
                                 0x49, 0xe6, 0x41, 0x24, 0x98, 0x7f, 0x28, 0xfb, 0x94, 0xc3};
constexpr Blake3Key kFileKey = {};

constexpr std::size_t kDigitsOfNumber = 16;
/// Children of a node: the mean that the cut rule aims at, and the bounds.
constexpr std::uint64_t kMeanChildren = 4;
constexpr std::size_t kFewestChildren = 3;  // of a node that isn't its level's last
constexpr std::size_t kMostChildren = 2 * kMeanChildren + 1;

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// How many of the nodes become children of the next node above.
std::size_t next_cut(std::span<const SizedHash> nodes) {
  const std::size_t most = std::min(kMostChildren, nodes.size());
  for (std::size_t count = kFewestChildren; count <= most; ++count) {
    std::uint64_t tail;
    std::memcpy(&tail, nodes[count - 1].hash.bytes.data() + 24, sizeof tail);
    if (tail % kMeanChildren == 0) return count;
  }
  return most;
}

/// The node above; its hash is that of a text with a line for each child.
SizedHash merge(std::span<const SizedHash> children) {
  std::string text;
  SizedHash parent;
  for (const SizedHash& child : children) {
    text += fmt::format("{} : {}\n", child.hash.hex(), child.size);
    parent.size += child.size;
  }
  parent.hash.bytes = blake3_keyed(kNodeKey, bytes_of(text));
  return parent;
}

XetHash root(std::span<const SizedHash> leaves) {
  if (leaves.empty()) return {};
  std::vector<SizedHash> level(leaves.begin(), leaves.end());
  while (level.size() > 1) {
    std::vector<SizedHash> above;
    for (std::span<const SizedHash> rest = level; !rest.empty();) {
      const std::size_t cut = next_cut(rest);
      above.push_back(merge(rest.first(cut)));
      rest = rest.subspan(cut);
    }
    level = std::move(above);
  }
  return level.front().hash;
}

}  // namespace

std::string XetHash::hex() const {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t number;
    std::memcpy(&number, &bytes[at], sizeof number);
    text += fmt::format("{:016x}", number);
  }
  return text;
}

XetHash chunk_hash(std::span<const std::uint8_t> bytes) { return {blake3_keyed(kChunkKey, bytes)}; }

XetHash xorb_hash(std::span<const SizedHash> chunks) { return root(chunks); }

XetHash file_hash(std::span<const SizedHash> chunks) {
  if (chunks.empty()) return {};
  return {blake3_keyed(kFileKey, root(chunks).bytes)};
}

XetHash range_hash(std::span<const SizedHash> chunks) {
  std::vector<std::uint8_t> all;
  all.reserve(chunks.size() * sizeof(XetHash::bytes));
  for (const SizedHash& chunk : chunks)
    all.insert(all.end(), chunk.hash.bytes.begin(), chunk.hash.bytes.end());
  return {blake3_keyed(kRangeKey, all)};
}

XetHash sha256_as_xet_hash(const std::string& hex) {
  XetHash out;
  check_internal(hex.size() == 2 * out.bytes.size(), "a SHA-256 has 64 digits");
  for (std::size_t at = 0; at < out.bytes.size(); at += 8) {
    std::uint64_t number = 0;
    const char* const digits = hex.data() + 2 * at;
    const auto [end, error] = std::from_chars(digits, digits + kDigitsOfNumber, number, 16);
    check_internal(error == std::errc() && end == digits + kDigitsOfNumber,
                   "a SHA-256 is hexadecimal");
    std::memcpy(&out.bytes[at], &number, sizeof number);
  }
  return out;
}

XetHash content_hash(std::span<const std::uint8_t> content) {
  std::vector<SizedHash> chunks;
  while (!content.empty()) {
    const auto chunk = content.first(first_chunk_size(content));
    chunks.push_back({chunk_hash(chunk), chunk.size()});
    content = content.subspan(chunk.size());
  }
  return file_hash(chunks);
}

}  // namespace lerobot::hub::xet
