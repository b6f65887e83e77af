// Zip archives of deflated members, as numpy.savez_compressed writes them.
//
// Compressing is apart from writing, so that several threads compress and one writes; what has been
// compressed may lie in a file meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lerobot/serialization/zip_archive.h"

namespace lerobot::serialization {

/// A member's content in its compressed form.
struct DeflatedContent {
  std::uint32_t crc = 0;   ///< of the content
  std::uint64_t size = 0;  ///< of the content
  std::vector<std::uint8_t> bytes;
};

/// Compresses at zlib's level 4: on tables of numbers as small as the default level, four times as
/// fast.
DeflatedContent deflate(std::span<const std::uint8_t> content);

/// Writes members one after the other, sizes in their headers, dates of 1980-01-01. ZIP64 records
/// where a size, a place or the number of members needs them.
class DeflatedZipWriter {
 public:
  explicit DeflatedZipWriter(ByteSink sink);

  /// `crc` and `size` are the content's, `compressed` is what deflate() made of it.
  void add(std::string name, std::uint32_t crc, std::uint64_t size,
           std::span<const std::uint8_t> compressed);
  void add(std::string name, const DeflatedContent& content) {
    add(std::move(name), content.crc, content.size, content.bytes);
  }
  /// Writes the directory. Nothing may be added after it.
  void finish();

 private:
  struct Entry {
    std::string name;
    std::uint32_t crc;
    std::uint64_t size;
    std::uint64_t compressed_size;
    std::uint64_t header_offset;
  };
  void emit(std::span<const std::uint8_t> bytes);
  void emit(const std::string& bytes);

  ByteSink sink_;
  std::uint64_t offset_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace lerobot::serialization
