#include "lerobot/video/tiff_gray.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lerobot/base/error.h"

namespace lerobot::video {
namespace {

// Tags of TIFF 6.0, section 8 and 19.
constexpr std::uint16_t kImageWidth = 256;
constexpr std::uint16_t kImageLength = 257;
constexpr std::uint16_t kBitsPerSample = 258;
constexpr std::uint16_t kCompression = 259;
constexpr std::uint16_t kPhotometric = 262;
constexpr std::uint16_t kStripOffsets = 273;
constexpr std::uint16_t kSamplesPerPixel = 277;
constexpr std::uint16_t kStripByteCounts = 279;
constexpr std::uint16_t kSampleFormat = 339;

constexpr std::uint16_t kShort = 3;
constexpr std::uint16_t kLong = 4;
constexpr std::uint32_t kUncompressed = 1;
constexpr std::uint32_t kBlackIsZero = 1;
constexpr std::uint32_t kUnsigned = 1;
constexpr std::uint32_t kFloat = 3;

class Reader {
 public:
  Reader(std::span<const std::uint8_t> bytes, bool little) : bytes_(bytes), little_(little) {}

  std::uint32_t u16(std::uint64_t offset) const { return load(offset, 2); }
  std::uint32_t u32(std::uint64_t offset) const { return load(offset, 4); }
  std::span<const std::uint8_t> span(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      fail("TIFF image: bytes {} to {} are needed, it has {}; the data is damaged", offset,
           offset + size, bytes_.size());
    return bytes_.subspan(offset, size);
  }

 private:
  std::uint32_t load(std::uint64_t offset, int size) const {
    const std::span<const std::uint8_t> field = span(offset, static_cast<std::uint64_t>(size));
    std::uint32_t value = 0;
    for (int i = 0; i < size; ++i)
      value |= static_cast<std::uint32_t>(field[i]) << 8 * (little_ ? i : size - 1 - i);
    return value;
  }

  std::span<const std::uint8_t> bytes_;
  bool little_;
};

/// One directory entry: short or long values, in place or elsewhere.
struct Field {
  std::uint32_t count = 0;
  std::uint32_t bytes = 0;  // of one value: 2 or 4; 0 for other types
  std::uint64_t offset = 0;

  std::uint32_t value(const Reader& reader, std::uint32_t i = 0) const {
    if (bytes == 0 || i >= count)
      fail(
          "TIFF image: a directory entry holds {} values, number {} is needed; the data is damaged",
          count, i + 1);
    const std::uint64_t at = offset + std::uint64_t{bytes} * i;
    return bytes == 2 ? reader.u16(at) : reader.u32(at);
  }
};

struct Directory {
  const Reader& reader;
  std::uint64_t offset;
  std::uint32_t entries;

  std::optional<Field> find(std::uint16_t tag) const {
    for (std::uint32_t i = 0; i < entries; ++i) {
      const std::uint64_t entry = offset + 2 + 12 * std::uint64_t{i};
      if (reader.u16(entry) != tag) continue;
      Field field;
      const std::uint32_t type = reader.u16(entry + 2);
      field.bytes = type == kShort ? 2 : type == kLong ? 4 : 0;
      field.count = reader.u32(entry + 4);
      field.offset =
          std::uint64_t{field.bytes} * field.count <= 4 ? entry + 8 : reader.u32(entry + 8);
      return field;
    }
    return std::nullopt;
  }
  std::uint32_t number(std::uint16_t tag, std::uint32_t otherwise) const {
    const std::optional<Field> field = find(tag);
    return field ? field->value(reader) : otherwise;
  }
};

}  // namespace

std::optional<Image> read_gray_tiff(std::span<const std::uint8_t> bytes) {
  const bool little = bytes.size() >= 8 && std::memcmp(bytes.data(), "II*\0", 4) == 0;
  const bool big = bytes.size() >= 8 && std::memcmp(bytes.data(), "MM\0*", 4) == 0;
  if (!little && !big) return std::nullopt;
  const Reader reader(bytes, little);
  const std::uint32_t offset = reader.u32(4);
  const Directory directory{reader, offset, reader.u16(offset)};

  const std::uint32_t bits = directory.number(kBitsPerSample, 1);
  const std::uint32_t format = directory.number(kSampleFormat, kUnsigned);
  const bool gray16 = bits == 16 && format == kUnsigned;
  const bool gray_float = bits == 32 && format == kFloat;
  if ((!gray16 && !gray_float) || directory.number(kSamplesPerPixel, 1) != 1 ||
      directory.number(kCompression, kUncompressed) != kUncompressed ||
      directory.number(kPhotometric, kBlackIsZero) != kBlackIsZero ||
      !directory.find(kStripOffsets))
    return std::nullopt;

  const std::uint32_t width = directory.number(kImageWidth, 0);
  const std::uint32_t height = directory.number(kImageLength, 0);
  const std::uint64_t value_bytes = bits / 8;
  const std::uint64_t needed = std::uint64_t{width} * height;  // values; below 2^64
  if (width == 0 || height == 0 || width > 1U << 24 || height > 1U << 24 ||
      needed > bytes.size() / value_bytes)
    fail("TIFF image: claims {}x{} values of {} bits, it has {} bytes; the data is damaged", width,
         height, bits, bytes.size());

  Image image;
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.channels = 1;
  image.bits = static_cast<int>(bits);
  image.format = gray16 ? Image::Format::kGray16 : Image::Format::kGrayFloat;
  std::uint8_t* out = nullptr;
  if (gray16) {
    image.gray16.resize(needed);
    out = reinterpret_cast<std::uint8_t*>(image.gray16.data());
  } else {
    image.gray_float.resize(needed);
    out = reinterpret_cast<std::uint8_t*>(image.gray_float.data());
  }

  const Field offsets = *directory.find(kStripOffsets);
  const std::optional<Field> counts = directory.find(kStripByteCounts);
  std::uint64_t left = needed * value_bytes;
  for (std::uint32_t strip = 0; left > 0; ++strip) {
    if (strip >= offsets.count)
      fail("TIFF image: its {} strips end {} bytes early; the data is damaged", offsets.count,
           left);
    const std::uint64_t size =
        std::min<std::uint64_t>(left, counts ? counts->value(reader, strip) : left);
    const std::span<const std::uint8_t> data = reader.span(offsets.value(reader, strip), size);
    std::memcpy(out, data.data(), size);
    out += size;
    left -= size;
  }
  if (little != (std::endian::native == std::endian::little)) {
    std::uint8_t* value = out - needed * value_bytes;
    for (std::uint64_t i = 0; i < needed; ++i, value += value_bytes)
      std::reverse(value, value + value_bytes);
  }
  return image;
}

}  // namespace lerobot::video
