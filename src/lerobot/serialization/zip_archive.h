// Zip archives (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT): reading of stored and
// deflated members, and writing in torch.save's layout. deflated_zip_writer.h writes numpy's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lerobot::serialization {

/// CRC-32 (polynomial 0xEDB88320) of `bytes`, continuing from `crc`.
std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc = 0);

/// What a reader of an archive takes.
enum class ZipCompression {
  kStoredOnly,  ///< as torch.save writes: bytes can be used where they lie
  kDeflate,     ///< stored and deflated members
};

/// The members of an archive in memory. The bytes must outlive it. Thread-safe.
class ZipReader {
 public:
  struct Member {
    std::string name;
    std::uint32_t crc = 0;
    std::uint64_t size = 0;  ///< of its content
    bool deflated = false;
    std::span<const std::uint8_t> bytes;  ///< as they lie in the archive
  };

  /// Reads the central directory; sizes come from there alone, so data descriptors and ZIP64 are
  /// fine. `name` stands for the file in messages. Throws Error for members whose compression is
  /// not `allowed`, encrypted members (named), duplicates, and anything that points outside the
  /// bytes.
  ZipReader(std::span<const std::uint8_t> bytes, std::string name,
            ZipCompression allowed = ZipCompression::kStoredOnly);

  /// In the directory's order.
  const std::vector<Member>& members() const { return members_; }
  /// What messages call the archive.
  const std::string& name() const { return name_; }
  /// Null when there is none.
  const Member* find(std::string_view name) const;
  /// The bytes of a stored member after a check of its CRC (one of zero counts as absent: torch can
  /// be told to leave it out). Throws Error naming the member.
  std::span<const std::uint8_t> checked_bytes(const Member& member) const;

  /// The directory's own bytes: names, sizes and CRCs of all members. Found without a look at its
  /// entries. Throws Error when the end records are missing or point outside the bytes.
  static std::span<const std::uint8_t> directory_of(std::span<const std::uint8_t> bytes,
                                                    const std::string& name);

  static bool looks_like_zip(std::span<const std::uint8_t> bytes);

 private:
  friend class ZipMemberStream;
  void check_method(std::uint16_t method, ZipCompression allowed, const std::string& member) const;
  void check_sizes(const Member& member, std::uint64_t stored_size) const;

  std::string name_;
  std::vector<Member> members_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// The content of one member from its beginning to its end, inflated on the way. Never gives more
/// than the declared size. The archive must outlive it.
class ZipMemberStream {
 public:
  ZipMemberStream(const ZipReader& archive, const ZipReader::Member& member);
  ~ZipMemberStream();

  std::uint64_t left() const { return left_; }
  /// The next out.size() bytes. Throws Error naming archive and member when there are not so many.
  void read(std::span<std::uint8_t> out);
  /// To be called at the end: throws Error when content is left, the compressed data goes on beyond
  /// the declared size, or the checksum differs.
  void finish();

 private:
  class Inflater;

  std::string archive_;
  const ZipReader::Member& member_;
  std::span<const std::uint8_t> in_;
  std::uint64_t left_;
  std::uint32_t crc_ = 0;
  std::unique_ptr<Inflater> inflater_;
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
