// Record signatures and fields of zip archives, for the reader and the two writers
// (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT). Private to serialization/.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>

namespace lerobot::serialization::zip {

inline constexpr std::uint32_t kLocalHeader = 0x04034b50;
inline constexpr std::uint32_t kDataDescriptor = 0x08074b50;
inline constexpr std::uint32_t kCentralHeader = 0x02014b50;
inline constexpr std::uint32_t kEnd = 0x06054b50;
inline constexpr std::uint32_t kZip64End = 0x06064b50;
inline constexpr std::uint32_t kZip64Locator = 0x07064b50;

inline constexpr std::size_t kLocalHeaderBytes = 30;
inline constexpr std::size_t kCentralHeaderBytes = 46;
inline constexpr std::size_t kEndBytes = 22;
inline constexpr std::size_t kZip64EndBytes = 56;
inline constexpr std::size_t kZip64LocatorBytes = 20;

inline constexpr std::uint16_t kZip64Extra = 0x0001;
inline constexpr std::uint16_t kEncrypted = 0x0001;
inline constexpr std::uint16_t kHasDescriptor = 0x0008;
inline constexpr std::uint16_t kUtf8 = 0x0800;
inline constexpr std::uint16_t kStored = 0;
inline constexpr std::uint16_t kDeflated = 8;
/// Version needed to extract: 2.0 for deflate, 4.5 for ZIP64.
inline constexpr std::uint16_t kVersionDeflate = 20;
inline constexpr std::uint16_t kVersionZip64 = 45;

/// Fields that hold their maximum are "see the ZIP64 record".
inline constexpr std::uint64_t k32Bits = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint64_t k16Bits = std::numeric_limits<std::uint16_t>::max();

/// Reads little-endian fields; whoever makes one has checked that they are there.
class Fields {
 public:
  explicit Fields(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint16_t u16(std::size_t at) const { return read<std::uint16_t>(at); }
  std::uint32_t u32(std::size_t at) const { return read<std::uint32_t>(at); }
  std::uint64_t u64(std::size_t at) const { return read<std::uint64_t>(at); }

 private:
  template <class T>
  T read(std::size_t at) const {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }
  std::span<const std::uint8_t> bytes_;
};

/// Appends the low `bytes` bytes of `value`, the lowest first.
inline void append(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

/// The ZIP64 field of a directory entry: the numbers that leave 32 bits; empty when none does.
inline std::string directory_zip64_extra(std::uint64_t size, std::uint64_t compressed_size,
                                         std::uint64_t header_offset) {
  const bool large = size >= k32Bits || compressed_size >= k32Bits;
  const bool far = header_offset >= k32Bits;
  std::string extra;
  if (!large && !far) return extra;
  append(extra, kZip64Extra, 2);
  append(extra, (large ? 16 : 0) + (far ? 8 : 0), 2);
  if (large) {
    append(extra, size, 8);
    append(extra, compressed_size, 8);
  }
  if (far) append(extra, header_offset, 8);
  return extra;
}

/// What the end records say about the directory.
struct DirectoryPlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
};

/// A ZIP64 end record and its locator, which stand behind the directory and before the end record.
inline void append_zip64_end(std::string& out, const DirectoryPlace& directory) {
  append(out, kZip64End, 4);
  append(out, kZip64EndBytes - 12, 8);
  append(out, 0x031e, 2);  // version made by
  append(out, kVersionZip64, 2);
  append(out, 0, 4);  // this disk
  append(out, 0, 4);  // directory's disk
  append(out, directory.entries, 8);
  append(out, directory.entries, 8);
  append(out, directory.bytes, 8);
  append(out, directory.offset, 8);
  append(out, kZip64Locator, 4);
  append(out, 0, 4);
  append(out, directory.offset + directory.bytes, 8);
  append(out, 1, 4);
}

/// The end record.
inline void append_end(std::string& out, const DirectoryPlace& directory) {
  append(out, kEnd, 4);
  append(out, 0, 4);  // disks
  append(out, std::min(directory.entries, k16Bits), 2);
  append(out, std::min(directory.entries, k16Bits), 2);
  append(out, std::min(directory.bytes, k32Bits), 4);
  append(out, std::min(directory.offset, k32Bits), 4);
  append(out, 0, 2);  // comment
}

}  // namespace lerobot::serialization::zip
