#include "lerobot/serialization/deflated_zip_writer.h"

#include <algorithm>
#include <new>
#include <utility>
#include <zlib.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/serialization/zip_format.h"

namespace lerobot::serialization {
namespace {

using namespace zip;

constexpr std::uint32_t kFirstOfJanuary1980 = 0x00210000;  // DOS date, then time: midnight
constexpr std::uint32_t kReadableByAll = 0100644U << 16;   // a regular file, rw-r--r--
constexpr std::uint16_t kMadeByUnix = 0x0300;

/// What local and central headers share, from "version needed" to "length of the extra field".
void append_common(std::string& out, std::uint16_t version, std::uint32_t crc,
                   std::uint64_t compressed_size, std::uint64_t size, std::uint64_t name_bytes,
                   std::uint64_t extra_bytes) {
  append(out, version, 2);
  append(out, kUtf8, 2);
  append(out, kDeflated, 2);
  append(out, kFirstOfJanuary1980, 4);
  append(out, crc, 4);
  append(out, compressed_size, 4);
  append(out, size, 4);
  append(out, name_bytes, 2);
  append(out, extra_bytes, 2);
}

}  // namespace

DeflatedContent deflate(std::span<const std::uint8_t> content) {
  DeflatedContent result;
  result.crc = crc32(content);
  result.size = content.size();
  z_stream stream{};
  constexpr int kLevel = 4;
  constexpr int kMemoryLevel = 8;  // zlib's default
  if (::deflateInit2(&stream, kLevel, Z_DEFLATED, -MAX_WBITS, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    throw std::bad_alloc();
  result.bytes.resize(::deflateBound(&stream, content.size()));
  std::size_t taken = 0, given = 0;
  int state = Z_OK;
  constexpr std::size_t kStep = 1 << 30;  // zlib counts in 32 bits
  while (state == Z_OK) {
    stream.next_in = const_cast<Bytef*>(content.data() + taken);
    stream.avail_in = static_cast<uInt>(std::min(content.size() - taken, kStep));
    stream.next_out = result.bytes.data() + given;
    stream.avail_out = static_cast<uInt>(std::min(result.bytes.size() - given, kStep));
    const uInt in = stream.avail_in, out = stream.avail_out;
    state = ::deflate(&stream, taken + in == content.size() ? Z_FINISH : Z_NO_FLUSH);
    taken += in - stream.avail_in;
    given += out - stream.avail_out;
  }
  ::deflateEnd(&stream);
  check_internal(state == Z_STREAM_END, "zlib exceeded its own bound of a compressed size");
  result.bytes.resize(given);
  result.bytes.shrink_to_fit();
  return result;
}

DeflatedZipWriter::DeflatedZipWriter(ByteSink sink) : sink_(std::move(sink)) {}

void DeflatedZipWriter::emit(std::span<const std::uint8_t> bytes) {
  sink_(bytes);
  offset_ += bytes.size();
}

void DeflatedZipWriter::emit(const std::string& bytes) {
  emit(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
}

void DeflatedZipWriter::add(std::string name, std::uint32_t crc, std::uint64_t size,
                            std::span<const std::uint8_t> compressed) {
  checked_cast<std::uint16_t>(name.size(), "length of a zip member's name");
  const bool large = size >= k32Bits || compressed.size() >= k32Bits;
  std::string extra;
  if (large) {
    append(extra, kZip64Extra, 2);
    append(extra, 16, 2);
    append(extra, size, 8);
    append(extra, compressed.size(), 8);
  }
  Entry entry{std::move(name), crc, size, compressed.size(), offset_};
  std::string header;
  append(header, kLocalHeader, 4);
  append_common(header, large ? kVersionZip64 : kVersionDeflate, crc,
                large ? k32Bits : compressed.size(), large ? k32Bits : size, entry.name.size(),
                extra.size());
  header += entry.name;
  header += extra;
  emit(header);
  emit(compressed);
  entries_.push_back(std::move(entry));
}

void DeflatedZipWriter::finish() {
  const std::uint64_t begin = offset_;
  for (const Entry& entry : entries_) {
    const bool large = entry.size >= k32Bits || entry.compressed_size >= k32Bits;
    const bool far = entry.header_offset >= k32Bits;
    const std::string extra =
        directory_zip64_extra(entry.size, entry.compressed_size, entry.header_offset);
    const std::uint16_t version = large || far ? kVersionZip64 : kVersionDeflate;
    std::string header;
    append(header, kCentralHeader, 4);
    append(header, kMadeByUnix | version, 2);
    append_common(header, version, entry.crc, large ? k32Bits : entry.compressed_size,
                  large ? k32Bits : entry.size, entry.name.size(), extra.size());
    append(header, 0, 2);  // comment
    append(header, 0, 2);  // disk
    append(header, 0, 2);  // internal attributes
    append(header, kReadableByAll, 4);
    append(header, far ? k32Bits : entry.header_offset, 4);
    header += entry.name;
    header += extra;
    emit(header);
  }
  const DirectoryPlace directory{begin, offset_ - begin, entries_.size()};
  std::string end;
  if (directory.entries >= k16Bits || directory.offset >= k32Bits || directory.bytes >= k32Bits)
    append_zip64_end(end, directory);
  append_end(end, directory);
  emit(end);
}

}  // namespace lerobot::serialization
