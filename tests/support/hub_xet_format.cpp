#include "tests/support/hub_xet_format.h"

#include "lerobot/base/error.h"
#include "tests/support/hub_lz4.h"

namespace lerobot::test_server {
namespace {

constexpr std::size_t kLargestChunk = 128 << 10;
constexpr std::size_t kLargestXorb = 64 << 20;
constexpr std::string_view kXorbFooter = "XETBLOB";

constexpr std::size_t kRecord = 48;
constexpr std::size_t kHash = 32;
constexpr std::uint32_t kWithVerification = 1u << 31;
constexpr std::uint32_t kWithMetadata = 1u << 30;
constexpr std::uint64_t kShardVersion = 2;
constexpr std::string_view kShardTag("HFRepoMetaData\0", 15);

enum class Packing { kNone = 0, kLz4 = 1, kGroupedLz4 = 2 };

struct ChunkHeader {
  std::size_t packed = 0;
  Packing packing = Packing::kNone;
  std::size_t unpacked = 0;
};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

ChunkHeader chunk_header(std::string_view bytes) {
  if (bytes.size() < kChunkHeader) fail("xorb: {} bytes behind the last chunk", bytes.size());
  if (bytes[0] != 0) fail("xorb: a chunk has version {}", static_cast<int>(bytes[0]));
  ChunkHeader header;
  header.packed = little_endian(bytes.substr(1, 3));
  const auto packing = static_cast<unsigned char>(bytes[4]);
  header.unpacked = little_endian(bytes.substr(5, 3));
  if (packing > 2) fail("xorb: a chunk has packing {}", packing);
  header.packing = static_cast<Packing>(packing);
  if (header.unpacked == 0 || header.unpacked > kLargestChunk)
    fail("xorb: a chunk of {} bytes; expected 1 to {}", header.unpacked, kLargestChunk);
  if (header.packed > bytes.size() - kChunkHeader)
    fail("xorb: a chunk of {} bytes where {} are left", header.packed, bytes.size() - kChunkHeader);
  if (header.packing == Packing::kNone && header.packed != header.unpacked)
    fail("xorb: a plain chunk of {} bytes says that it has {}", header.packed, header.unpacked);
  return header;
}

/// Bytes 0, 4, 8, ... lie first, then 1, 5, 9, ... and so on.
std::string ungrouped(const std::string& grouped) {
  std::string plain(grouped.size(), '\0');
  std::size_t from = 0;
  for (std::size_t group = 0; group < 4; ++group)
    for (std::size_t at = group; at < plain.size(); at += 4) plain[at] = grouped[from++];
  return plain;
}

/// A hash as text: each 8 bytes are one little-endian number.
std::string hash_text(std::string_view raw) {
  std::string text;
  for (std::size_t at = 0; at < kHash; at += 8)
    text += fmt::format("{:016x}", little_endian(raw.substr(at, 8)));
  return text;
}

/// Records of 48 bytes one after the other.
class Records {
 public:
  explicit Records(std::string_view bytes) : bytes_(bytes) {}

  std::string_view next(const char* what) {
    if (bytes_.size() < kRecord) fail("shard: cut off in {}", what);
    const std::string_view record = bytes_.substr(0, kRecord);
    bytes_.remove_prefix(kRecord);
    return record;
  }

 private:
  std::string_view bytes_;
};

std::uint32_t number(std::string_view record, std::size_t index) {
  return static_cast<std::uint32_t>(little_endian(record.substr(kHash + 4 * index, 4)));
}

std::string record_hash(std::string_view record) { return hash_text(record.substr(0, kHash)); }

/// A section ends with a record whose hash has all bits set.
bool is_end(std::string_view record) {
  return record.substr(0, kHash).find_first_not_of('\xff') == std::string_view::npos;
}

ShardFile shard_file(std::string_view header, Records& records) {
  ShardFile file;
  file.hash = record_hash(header);
  const std::uint32_t flags = number(header, 0);
  const std::uint32_t count = number(header, 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view record = records.next("a file's segments");
    file.segments.push_back(
        {record_hash(record), number(record, 1), number(record, 2), number(record, 3)});
  }
  if (flags & kWithVerification)
    for (std::uint32_t i = 0; i < count; ++i)
      file.verification.push_back(record_hash(records.next("a file's verification")));
  if (flags & kWithMetadata) file.sha256 = record_hash(records.next("a file's metadata"));
  return file;
}

ShardXorb shard_xorb(std::string_view header, Records& records) {
  ShardXorb xorb;
  xorb.hash = record_hash(header);
  xorb.unpacked = number(header, 2);
  const std::uint32_t count = number(header, 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view record = records.next("a xorb's chunks");
    xorb.chunks.push_back({record_hash(record), number(record, 0), number(record, 1)});
  }
  return xorb;
}

}  // namespace

std::vector<XorbChunk> parse_xorb(std::string_view xorb) {
  std::vector<XorbChunk> chunks;
  std::uint64_t unpacked = 0;
  for (std::size_t at = 0; at < xorb.size() && !xorb.substr(at).starts_with(kXorbFooter);) {
    const ChunkHeader header = chunk_header(xorb.substr(at));
    const std::size_t end = at + kChunkHeader + header.packed;
    chunks.push_back(
        {at, end, static_cast<std::uint32_t>(header.unpacked), header.packing == Packing::kNone});
    unpacked += header.unpacked;
    at = end;
  }
  if (chunks.empty()) fail("xorb: has no chunk");
  if (unpacked > kLargestXorb) fail("xorb: holds {} bytes; at most {}", unpacked, kLargestXorb);
  return chunks;
}

std::string unpack_chunk(std::string_view chunk) {
  const ChunkHeader header = chunk_header(chunk);
  const std::string_view packed = chunk.substr(kChunkHeader, header.packed);
  if (header.packing == Packing::kNone) return std::string(packed);
  std::string plain = unpack_lz4_frame(packed, header.unpacked);
  if (plain.size() != header.unpacked)
    fail("xorb: a chunk unpacks to {} bytes, not {}", plain.size(), header.unpacked);
  return header.packing == Packing::kLz4 ? plain : ungrouped(plain);
}

std::string plain_chunk_header(std::uint32_t size) {
  std::string header(kChunkHeader, '\0');
  for (int i = 0; i < 3; ++i)
    header[1 + i] = header[5 + i] = static_cast<char>(size >> (8 * i) & 0xff);
  return header;
}

Shard parse_shard(std::string_view bytes) {
  Records records(bytes);
  const std::string_view header = records.next("the header");
  if (!header.starts_with(kShardTag)) fail("shard: has not the tag of one");
  if (const auto version = little_endian(header.substr(kHash, 8)); version != kShardVersion)
    fail("shard: has version {}; expected {}", version, kShardVersion);
  Shard shard;
  while (true) {
    const std::string_view record = records.next("the files");
    if (is_end(record)) break;
    shard.files.push_back(shard_file(record, records));
  }
  while (true) {
    const std::string_view record = records.next("the xorbs");
    if (is_end(record)) break;
    shard.xorbs.push_back(shard_xorb(record, records));
  }
  return shard;
}

}  // namespace lerobot::test_server
