#include "lerobot/video/image_decoder.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/video/ffmpeg.h"
#include "lerobot/video/frame_converter.h"
#include "lerobot/video/tiff_gray.h"

namespace lerobot::video {
namespace {

// Deflate makes at most 1032 bytes out of one, a byte holds at most 8 pixels: more pixels than this
// a byte are a lie, found before memory is taken for them.
constexpr std::int64_t kMaximumPixelsAByte = 1032 * 8;

bool begins_with(std::span<const std::uint8_t> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

struct Kind {
  AVCodecID codec;
  const char* name;
};

Kind recognise(std::span<const std::uint8_t> bytes) {
  using namespace std::string_view_literals;
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n"sv)) return {AV_CODEC_ID_PNG, "PNG"};
  if (begins_with(bytes, "II*\0"sv) || begins_with(bytes, "MM\0*"sv))
    return {AV_CODEC_ID_TIFF, "TIFF"};
  std::string start;
  for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 8); ++i)
    start += fmt::format("{}{:02x}", i ? " " : "", bytes[i]);
  fail("image of {} bytes: neither PNG nor TIFF (it begins with: {})", bytes.size(),
       start.empty() ? "nothing" : start);
}

/// A PNG ends with an IEND chunk; FFmpeg accepts one that is cut before it.
void check_png_end(std::span<const std::uint8_t> bytes) {
  std::size_t offset = 8;
  while (bytes.size() - offset >= 12) {
    const std::uint64_t length = static_cast<std::uint64_t>(bytes[offset]) << 24 |
                                 bytes[offset + 1] << 16 | bytes[offset + 2] << 8 |
                                 bytes[offset + 3];
    if (length > bytes.size() - offset - 12) break;
    if (std::memcmp(bytes.data() + offset + 4, "IEND", 4) == 0) return;
    offset += length + 12;
  }
  fail("PNG image of {} bytes: it is cut (no IEND chunk); the data is damaged", bytes.size());
}

UniqueFrame decode_frame(std::span<const std::uint8_t> bytes, const Kind& kind) {
  const AVCodec* codec = avcodec_find_decoder(kind.codec);
  if (!codec) fail("this FFmpeg has no {} decoder; install one that has", kind.name);
  UniqueCodecContext context = make_codec_context(codec);
  context->max_pixels =
      std::min(context->max_pixels, static_cast<std::int64_t>(bytes.size()) * kMaximumPixelsAByte);
  if (kind.codec ==
      AV_CODEC_ID_PNG)  // the TIFF decoder refuses tags that it doesn't know with these
    context->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
  const UniquePacket packet(av_packet_alloc());
  UniqueFrame frame(av_frame_alloc());
  if (!packet || !frame ||
      av_new_packet(packet.get(), checked_cast<int>(bytes.size(), "size of an image")) < 0)
    throw std::bad_alloc();
  std::memcpy(packet->data, bytes.data(), bytes.size());

  forget_ffmpeg_message();
  int result = avcodec_open2(context.get(), codec, nullptr);
  if (result >= 0) result = avcodec_send_packet(context.get(), packet.get());
  if (result >= 0) result = avcodec_receive_frame(context.get(), frame.get());
  if (result == AVERROR(EAGAIN)) {  // some decoders give a still picture only at the end
    result = avcodec_send_packet(context.get(), nullptr);
    if (result >= 0) result = avcodec_receive_frame(context.get(), frame.get());
  }
  if (result == AVERROR_PATCHWELCOME)
    fail("{} image of {} bytes is of a kind that FFmpeg does not read: {}", kind.name, bytes.size(),
         ffmpeg_error_text(result));
  if (result < 0)
    fail("{} image of {} bytes does not decode: {}; the data is damaged", kind.name, bytes.size(),
         ffmpeg_error_text(result));
  if (frame->decode_error_flags != 0)
    fail("{} image of {} bytes does not decode completely; the data is damaged", kind.name,
         bytes.size());
  return frame;
}

/// How a packed pixel format lies in memory, for reading one 8-bit value a channel. Of a 16-bit
/// channel the high byte is taken, as PIL does.
struct PackedLayout {
  int pixel_bytes;
  int channel[3];  // byte offset of red, green, blue
};

const PackedLayout* packed_layout(int format) {
  static constexpr PackedLayout kRgb{3, {0, 1, 2}};
  static constexpr PackedLayout kRgba{4, {0, 1, 2}};
  static constexpr PackedLayout kGray{1, {0, 0, 0}};
  static constexpr PackedLayout kGrayAlpha{2, {0, 0, 0}};
  static constexpr PackedLayout kRgb48Big{6, {0, 2, 4}};
  static constexpr PackedLayout kRgb48Little{6, {1, 3, 5}};
  static constexpr PackedLayout kRgba64Big{8, {0, 2, 4}};
  static constexpr PackedLayout kRgba64Little{8, {1, 3, 5}};
  static constexpr PackedLayout kGrayAlpha16Big{4, {0, 0, 0}};
  switch (format) {
    case AV_PIX_FMT_RGB24:
      return &kRgb;
    case AV_PIX_FMT_RGBA:
    case AV_PIX_FMT_RGB0:
      return &kRgba;
    case AV_PIX_FMT_GRAY8:
      return &kGray;
    case AV_PIX_FMT_YA8:
      return &kGrayAlpha;
    case AV_PIX_FMT_RGB48BE:
      return &kRgb48Big;
    case AV_PIX_FMT_RGB48LE:
      return &kRgb48Little;
    case AV_PIX_FMT_RGBA64BE:
      return &kRgba64Big;
    case AV_PIX_FMT_RGBA64LE:
      return &kRgba64Little;
    case AV_PIX_FMT_YA16BE:
      return &kGrayAlpha16Big;
    default:
      return nullptr;
  }
}

void split_row(const AVFrame& frame, const std::uint8_t* row, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue) {
  const int width = frame.width;
  if (frame.format == AV_PIX_FMT_RGB24) {
    split_rgb(row, static_cast<std::size_t>(width), red, green, blue);
    return;
  }
  if (frame.format == AV_PIX_FMT_PAL8) {
    for (int x = 0; x < width; ++x) {
      std::uint32_t color;  // 0xAARRGGBB in native byte order
      std::memcpy(&color, frame.data[1] + 4 * row[x], 4);
      red[x] = static_cast<std::uint8_t>(color >> 16);
      green[x] = static_cast<std::uint8_t>(color >> 8);
      blue[x] = static_cast<std::uint8_t>(color);
    }
    return;
  }
  if (frame.format == AV_PIX_FMT_MONOBLACK || frame.format == AV_PIX_FMT_MONOWHITE) {
    const int inverted = frame.format == AV_PIX_FMT_MONOWHITE ? 1 : 0;
    for (int x = 0; x < width; ++x) {
      const int bit = (row[x / 8] >> (7 - x % 8) & 1) ^ inverted;
      red[x] = green[x] = blue[x] = bit ? 255 : 0;
    }
    return;
  }
  const PackedLayout& layout = *packed_layout(frame.format);
  for (int x = 0; x < width; ++x, row += layout.pixel_bytes) {
    red[x] = row[layout.channel[0]];
    green[x] = row[layout.channel[1]];
    blue[x] = row[layout.channel[2]];
  }
}

void fill_rgb(const AVFrame& frame, Image& image) {
  image.format = Image::Format::kRgbPlanes;
  image.channels = 3;
  image.bits = 8;
  const std::size_t width = static_cast<std::size_t>(frame.width);
  const std::size_t plane = width * static_cast<std::size_t>(frame.height);
  image.planes.resize(3 * plane);
  for (int y = 0; y < frame.height; ++y) {
    std::uint8_t* red = image.planes.data() + width * static_cast<std::size_t>(y);
    split_row(frame, frame.data[0] + std::ptrdiff_t{frame.linesize[0]} * y, red, red + plane,
              red + 2 * plane);
  }
}

void fill_gray16(const AVFrame& frame, Image& image) {
  image.format = Image::Format::kGray16;
  image.channels = 1;
  image.bits = 16;
  const auto width = static_cast<std::size_t>(frame.width);
  image.gray16.resize(width * static_cast<std::size_t>(frame.height));
  std::uint16_t* out = image.gray16.data();
  const bool swap = frame.format != AV_PIX_FMT_GRAY16;  // the native one
  for (int y = 0; y < frame.height; ++y, out += width) {
    std::memcpy(out, frame.data[0] + std::ptrdiff_t{frame.linesize[0]} * y, 2 * width);
    if (swap)
      std::transform(out, out + width, out, [](std::uint16_t v) { return __builtin_bswap16(v); });
  }
}

}  // namespace

Image decode_image(std::span<const std::uint8_t> bytes) {
  const Kind kind = recognise(bytes);
  if (kind.codec == AV_CODEC_ID_TIFF) {
    if (std::optional<Image> image = read_gray_tiff(bytes)) return *std::move(image);
  } else {
    check_png_end(bytes);
  }
  const UniqueFrame frame = decode_frame(bytes, kind);
  Image image;
  image.width = frame->width;
  image.height = frame->height;
  switch (frame->format) {
    case AV_PIX_FMT_GRAY16LE:
    case AV_PIX_FMT_GRAY16BE:
      fill_gray16(*frame, image);
      break;
    case AV_PIX_FMT_PAL8:
    case AV_PIX_FMT_MONOBLACK:
    case AV_PIX_FMT_MONOWHITE:
      fill_rgb(*frame, image);
      break;
    default:
      if (!packed_layout(frame->format)) {
        const char* name = av_get_pix_fmt_name(static_cast<AVPixelFormat>(frame->format));
        fail(
            "{} image of {}x{}: pixels of kind {} are not supported (8-bit RGB, gray and palette, "
            "16-bit and float gray are)",
            kind.name, frame->width, frame->height, name ? name : "unknown");
      }
      fill_rgb(*frame, image);
  }
  return image;
}

}  // namespace lerobot::video
