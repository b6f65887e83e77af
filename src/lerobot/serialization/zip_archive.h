// Zip archives of stored (uncompressed) members, as torch.save writes them
// (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lerobot::serialization {

/// CRC-32 (polynomial 0xEDB88320) of `bytes`, continuing from `crc`.
std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc = 0);

/// The members of an archive in memory. The bytes must outlive it. Thread-safe.
class ZipReader {
 public:
  struct Member {
    std::string name;
    std::uint32_t crc = 0;
    std::span<const std::uint8_t> bytes;
  };

  /// Reads the central directory; sizes come from there alone, so data descriptors and ZIP64 are
  /// fine. `name` stands for the file in messages. Throws Error for compressed or encrypted members
  /// (named), duplicates, and anything that points outside the bytes.
  ZipReader(std::span<const std::uint8_t> bytes, std::string name);

  /// In the directory's order.
  const std::vector<Member>& members() const { return members_; }
  /// Null when there is none.
  const Member* find(std::string_view name) const;
  /// The member's bytes after a check of its CRC (one of zero counts as absent: torch can be told
  /// to leave it out). Throws Error naming the member.
  std::span<const std::uint8_t> checked_bytes(const Member& member) const;

  static bool looks_like_zip(std::span<const std::uint8_t> bytes);

 private:
  std::string name_;
  std::vector<Member> members_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// Receives an archive's bytes in order.
using ByteSink = std::function<void(std::span<const std::uint8_t>)>;

/// Writes members in torch's layout: stored, sizes and CRCs in data descriptors, each member's
/// bytes padded to a multiple of 64 from the archive's start, a ZIP64 end record before the normal
/// one.
class ZipWriter {
 public:
  static constexpr std::uint64_t kAlignment = 64;

  explicit ZipWriter(ByteSink sink);

  void add(std::string name, std::span<const std::uint8_t> bytes);
  void add(std::string name, std::string_view text);
  /// Writes the directory. Nothing may be added after it.
  void finish();

  /// What torch stores as .data/serialization_id: 40 digits that depend on names and CRCs.
  std::string serialization_id() const;

 private:
  struct Entry {
    std::string name;
    std::uint32_t crc;
    std::uint64_t size;
    std::uint64_t header_offset;
  };
  void emit(std::string_view bytes);

  ByteSink sink_;
  std::uint64_t offset_ = 0;
  std::uint64_t combined_crc_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace lerobot::serialization
