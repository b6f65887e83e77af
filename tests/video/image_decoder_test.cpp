#include "lerobot/video/image_decoder.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/video/test_videos.h"

namespace lerobot::video {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Images of 9x5 and beside each, as NAME.raw, the values that PIL reads from it.
const fs::path kImages = fs::path(LEROBOT_TEST_DATA) / "images";

Bytes raw_values(const Image& image) {
  const auto* begin = image.planes.data();
  std::size_t size = image.planes.size();
  if (!image.gray16.empty()) {
    begin = reinterpret_cast<const std::uint8_t*>(image.gray16.data());
    size = 2 * image.gray16.size();
  } else if (!image.gray_float.empty()) {
    begin = reinterpret_cast<const std::uint8_t*>(image.gray_float.data());
    size = 4 * image.gray_float.size();
  }
  return {begin, begin + size};
}

TEST(ImageDecoderTest, EveryKindOfImageHasPilsValues) {
  const struct {
    const char* name;
    Image::Format format;
    int channels;
    int bits;
  } images[] = {
      {"rgb.png", Image::Format::kRgbPlanes, 3, 8},
      {"rgba.png", Image::Format::kRgbPlanes, 3, 8},
      {"gray.png", Image::Format::kRgbPlanes, 3, 8},
      {"gray_alpha.png", Image::Format::kRgbPlanes, 3, 8},
      {"palette.png", Image::Format::kRgbPlanes, 3, 8},
      {"bilevel.png", Image::Format::kRgbPlanes, 3, 8},
      {"rgb16.png", Image::Format::kRgbPlanes, 3, 8},
      {"rgb.tiff", Image::Format::kRgbPlanes, 3, 8},
      {"gray16.png", Image::Format::kGray16, 1, 16},
      {"gray16.tiff", Image::Format::kGray16, 1, 16},
      {"gray16_lzw.tiff", Image::Format::kGray16, 1, 16},
      {"gray16_big_endian.tiff", Image::Format::kGray16, 1, 16},
      {"float.tiff", Image::Format::kGrayFloat, 1, 32},
  };
  for (const auto& expected : images) {
    SCOPED_TRACE(expected.name);
    const Image image = decode_image(read_bytes(kImages / expected.name));
    EXPECT_EQ(image.width, 9);
    EXPECT_EQ(image.height, 5);
    EXPECT_EQ(image.format, expected.format);
    EXPECT_EQ(image.channels, expected.channels);
    EXPECT_EQ(image.bits, expected.bits);
    EXPECT_EQ(raw_values(image), read_bytes(kImages / (std::string(expected.name) + ".raw")));
  }
}

TEST(ImageDecoderTest, OtherBytesAreNamed) {
  EXPECT_THAT(error_of([] { decode_image({}); }), HasSubstr("neither PNG nor TIFF"));
  const Bytes jpeg = {0xff, 0xd8, 0xff, 0xe0, 1, 2, 3};
  EXPECT_THAT(error_of([&] { decode_image(jpeg); }),
              AllOf(HasSubstr("7 bytes"), HasSubstr("ff d8 ff e0")));
}

TEST(ImageDecoderTest, AFloatTiffThatIsCompressedIsRefused) {
  const Bytes bytes = read_bytes(kImages / "float_lzw.tiff");
  EXPECT_THAT(error_of([&] { decode_image(bytes); }),
              AllOf(HasSubstr("TIFF image"), HasSubstr("not supported")));
}

TEST(ImageDecoderTest, ADamagedOrCutPngIsAnError) {
  const Bytes original = read_bytes(kImages / "rgb.png");
  for (std::size_t size = 8; size < original.size(); ++size) {
    const Bytes cut(original.begin(), original.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(error_of([&] { decode_image(cut); }), HasSubstr("damaged")) << size;
  }
  Bytes flipped = original;
  flipped[60] ^= 0x10;
  EXPECT_THAT(error_of([&] { decode_image(flipped); }),
              AllOf(HasSubstr("does not decode"), HasSubstr("CRC")));
}

TEST(ImageDecoderTest, EveryByteOfAnImageReplacedGivesAnErrorOrAnImage) {
  for (const char* name : {"rgb.png", "palette.png", "gray16.tiff", "gray16_big_endian.tiff",
                           "float.tiff", "rgb.tiff", "gray16_lzw.tiff"}) {
    const Bytes original = read_bytes(kImages / name);
    for (std::size_t at = 0; at < original.size(); ++at)
      for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
        Bytes bytes = original;
        bytes[at] = static_cast<std::uint8_t>(value);
        try {
          const Image image = decode_image(bytes);
          EXPECT_LE(image.width * image.height, 1 << 20);
        } catch (const Error&) {
        }
      }
  }
}

TEST(ImageDecoderTest, ATiffThatClaimsMoreThanItHasIsRefused) {
  Bytes bytes = read_bytes(kImages / "gray16.tiff");
  // The first entry of the directory is the width: little-endian, its value in place.
  const std::size_t directory = bytes[4] + 256U * bytes[5];
  bytes[directory + 2 + 8 + 2] = 0x7f;
  EXPECT_THAT(error_of([&] { decode_image(bytes); }),
              AllOf(HasSubstr("claims"), HasSubstr("damaged")));
}

}  // namespace
}  // namespace lerobot::video
