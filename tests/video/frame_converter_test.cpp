#include "lerobot/video/frame_converter.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/video/test_videos.h"

namespace lerobot::video {
namespace {

TEST(SplitRgbTest, EveryLengthIsSplitAndNothingBeyondIsWritten) {
  std::mt19937 random(9);
  for (std::size_t pixels = 0; pixels < 200; ++pixels) {
    Bytes packed(3 * pixels);
    for (std::uint8_t& value : packed) value = static_cast<std::uint8_t>(random());
    Bytes planes[3] = {Bytes(pixels + 1, 77), Bytes(pixels + 1, 77), Bytes(pixels + 1, 77)};
    split_rgb(packed.data(), pixels, planes[0].data(), planes[1].data(), planes[2].data());
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t i = 0; i < pixels; ++i) ASSERT_EQ(planes[c][i], packed[3 * i + c]);
      ASSERT_EQ(planes[c][pixels], 77);
    }
  }
}

// Blocks of rows must not change a value: each frame also goes through swscale as a whole.
TEST(FrameConverterTest, BlocksOfRowsGiveTheValuesOfAWholeFrame) {
  for (const auto& [width, height] : {std::pair{640, 480}, {642, 362}, {33, 258}, {1280, 720}}) {
    UniqueFrame frame(av_frame_alloc());
    frame->format = AV_PIX_FMT_YUV420P;
    frame->width = width;
    frame->height = height;
    ASSERT_GE(av_frame_get_buffer(frame.get(), 0), 0);
    std::mt19937 random(4);
    for (int p = 0; p < 3; ++p)
      for (int i = 0; i < frame->linesize[p] * (p == 0 ? height : height / 2); ++i)
        frame->data[p][i] = static_cast<std::uint8_t>(random());

    const int stride = 3 * width + 64;
    Bytes packed(static_cast<std::size_t>(stride) * height + 64);
    const UniqueScaler scaler(sws_getContext(width, height, AV_PIX_FMT_YUV420P, width, height,
                                             AV_PIX_FMT_RGB24, SWS_BICUBIC, nullptr, nullptr,
                                             nullptr));
    std::uint8_t* destination[4] = {packed.data()};
    const int strides[4] = {stride};
    sws_scale(scaler.get(), frame->data, frame->linesize, 0, height, destination, strides);

    const std::size_t plane = static_cast<std::size_t>(width) * height;
    Bytes out(3 * plane);
    FrameConverter converter(PixelLayout::kRgbPlanes);
    converter.convert(*frame, out.data());
    std::size_t wrong = 0;
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t i = 0; i < plane; ++i)
        wrong += out[c * plane + i] != packed[i / width * stride + i % width * 3 + c];
    EXPECT_EQ(wrong, 0U) << width << "x" << height;
  }
}

}  // namespace
}  // namespace lerobot::video
