// Boxes of an MP4 file (ISO/IEC 14496-12, section 4.2): size, type, payload. Every read is checked;
// messages name the file and the box by its path ("moov/trak/mdia/mdhd").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lerobot/base/error.h"

namespace lerobot::video {

/// A box type, four characters.
using BoxType = std::uint32_t;

consteval BoxType box_type(const char (&text)[5]) {
  return static_cast<BoxType>(static_cast<unsigned char>(text[0])) << 24 |
         static_cast<BoxType>(static_cast<unsigned char>(text[1])) << 16 |
         static_cast<BoxType>(static_cast<unsigned char>(text[2])) << 8 |
         static_cast<BoxType>(static_cast<unsigned char>(text[3]));
}

/// The four characters for a message; those that can't be printed become '?'.
std::string box_name(BoxType type);

inline std::uint32_t load_be32(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) << 24 | static_cast<std::uint32_t>(bytes[1]) << 16 |
         static_cast<std::uint32_t>(bytes[2]) << 8 | static_cast<std::uint32_t>(bytes[3]);
}
inline std::uint64_t load_be64(const std::uint8_t* bytes) {
  return static_cast<std::uint64_t>(load_be32(bytes)) << 32 | load_be32(bytes + 4);
}

/// The head of a box: what the first 8 or 16 bytes say.
struct BoxHeader {
  BoxType type = 0;
  std::uint64_t header_bytes = 8;
  std::uint64_t total_bytes = 0;  // header included
};

/// Reads a header from the first bytes of `available` bytes that end the enclosing box or file (a
/// size of 0 means "to the end"). nullopt when the header itself is cut or its size is smaller than
/// itself. The box may be longer than `available`: the caller decides what that means.
std::optional<BoxHeader> read_box_header(std::span<const std::uint8_t> bytes,
                                         std::uint64_t available);

/// The payload of one box, with its path for messages. A view: the bytes belong to somebody else.
class Box {
 public:
  Box(std::string_view file, std::string path, std::span<const std::uint8_t> payload)
      : file_(file), path_(std::move(path)), payload_(payload) {}

  std::string_view file() const { return file_; }
  const std::string& path() const { return path_; }
  std::span<const std::uint8_t> payload() const { return payload_; }
  std::uint64_t size() const { return payload_.size(); }

  std::uint8_t u8(std::uint64_t offset) const { return *at(offset, 1); }
  std::uint16_t u16(std::uint64_t offset) const {
    const std::uint8_t* bytes = at(offset, 2);
    return static_cast<std::uint16_t>(bytes[0] << 8 | bytes[1]);
  }
  std::uint32_t u32(std::uint64_t offset) const { return load_be32(at(offset, 4)); }
  std::uint64_t u64(std::uint64_t offset) const { return load_be64(at(offset, 8)); }
  /// Version of a full box, and its 24 flag bits.
  std::uint8_t version() const { return u8(0); }
  std::uint32_t flags() const { return u32(0) & 0xffffff; }

  /// The entries of a table: `count` of `entry_bytes` each, from `offset`. Throws Error with both
  /// numbers when the box is too small for them.
  const std::uint8_t* table(std::uint64_t offset, std::uint64_t count,
                            std::uint64_t entry_bytes) const;

  /// Calls visit(type, Box) for each child box from payload byte `offset` on.
  template <class Visit>
  void for_each_child(std::uint64_t offset, Visit&& visit) const {
    while (offset < size()) {
      // Some writers end a container with a 32-bit zero (QuickTime) or a few stray bytes.
      if (size() - offset < 8) return;
      const BoxHeader header = child_header(offset);
      visit(header.type, Box(file_, path_ + "/" + box_name(header.type),
                             payload_.subspan(offset + header.header_bytes,
                                              header.total_bytes - header.header_bytes)));
      offset += header.total_bytes;
    }
  }

  /// The first child of that type.
  std::optional<Box> find(BoxType type, std::uint64_t offset = 0) const;
  /// Same; throws Error naming the file and the path when it is missing.
  Box require(BoxType type, std::uint64_t offset = 0) const;

  /// Throws Error: "FILE: box PATH: MESSAGE; the file is damaged ...".
  template <class... Args>
  [[noreturn]] void broken(fmt::format_string<Args...> format, Args&&... args) const {
    throw_broken(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const std::uint8_t* at(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > size() || bytes > size() - offset) throw_short(offset, bytes);
    return payload_.data() + offset;
  }
  BoxHeader child_header(std::uint64_t offset) const;
  [[noreturn]] void throw_short(std::uint64_t offset, std::uint64_t bytes) const;
  [[noreturn]] void throw_broken(const std::string& message) const;

  std::string_view file_;
  std::string path_;
  std::span<const std::uint8_t> payload_;
};

}  // namespace lerobot::video
