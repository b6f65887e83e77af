#include "lerobot/video/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

extern "C" {
#include <libavutil/mem.h>
#include <libavutil/sha.h>
}

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/json.h"
#include "tests/video/test_videos.h"

namespace lerobot::video {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-4;

std::string sha256(const Bytes& bytes) {
  AVSHA* sha = av_sha_alloc();
  av_sha_init(sha, 256);
  av_sha_update(sha, bytes.data(), bytes.size());
  std::uint8_t digest[32];
  av_sha_final(sha, digest);
  av_free(sha);
  std::string text;
  for (const std::uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

class DecoderTest : public VideoTest {
 protected:
  static double time_of(const PacketSource& source, std::size_t frame) {
    return source.index().presentation_time(source.index().sample_of_frame(frame));
  }

  /// Asks for `frames` in that order in one call and compares each with the reference.
  static void expect_frames(Decoder& decoder, const std::vector<std::size_t>& frames,
                            const std::vector<Bytes>& reference) {
    std::vector<Bytes> out(frames.size(), Bytes(reference[0].size()));
    std::vector<FrameRequest> requests;
    for (std::size_t i = 0; i < frames.size(); ++i)
      requests.push_back({time_of(*decoder.source(), frames[i]), out[i].data()});
    decoder.decode(requests, kTolerance);
    for (std::size_t i = 0; i < frames.size(); ++i)
      EXPECT_TRUE(out[i] == reference[frames[i]]) << "frame " << frames[i];
  }

  /// Every way of reading gives the frames of a linear decode.
  void expect_equal_to_linear_decode(const fs::path& path) {
    SCOPED_TRACE(path);
    const auto file = VideoFile::open(path);
    const std::vector<Bytes> reference = linear_decode(path, file->width(), file->height());
    const std::size_t n = reference.size();
    ASSERT_EQ(static_cast<std::size_t>(file->frame_count()), n);
    std::mt19937 random(1);
    std::vector<std::size_t> all(n);
    std::iota(all.begin(), all.end(), 0);

    Decoder sequential(file, PixelLayout::kRgbPlanes);
    for (const std::size_t frame : all) expect_frames(sequential, {frame}, reference);

    std::shuffle(all.begin(), all.end(), random);
    Decoder one_by_one(file, PixelLayout::kRgbPlanes);
    for (const std::size_t frame : all) expect_frames(one_by_one, {frame}, reference);

    Decoder at_once(file, PixelLayout::kRgbPlanes);
    expect_frames(at_once, all, reference);
    EXPECT_LE(at_once.packets_sent(), file->index().samples.size());  // every GOP once

    Decoder windows(file, PixelLayout::kRgbPlanes);
    for (int i = 0; i < 40; ++i) {
      std::vector<std::size_t> window;
      const std::size_t begin = random() % n;
      const std::size_t step = 1 + random() % 3;
      for (std::size_t k = 0; k < 5; ++k) window.push_back(std::min(begin + k * step, n - 1));
      std::shuffle(window.begin(), window.end(), random);
      expect_frames(windows, window, reference);
    }
  }
};

// ---- Pixels
// ----------------------------------------------------------------------------------------

TEST_F(DecoderTest, ToyDatasetsDecodeToTheBytesOfTorchcodec) {
  const fs::path data = LEROBOT_TEST_DATA;
  const Json oracle = read_json_file(data / "oracles/decoded_frames_chw_sha256.json");
  ASSERT_EQ(oracle.size(), 3U);
  for (const auto& [name, hashes] : oracle.items()) {
    const std::string dataset = name.substr(0, name.find('.'));
    const std::string camera = name.substr(name.find('.') + 1);
    const auto file =
        VideoFile::open(data / "datasets" / dataset / "videos" / camera / "chunk-000/file-000.mp4");
    ASSERT_EQ(static_cast<std::size_t>(file->frame_count()), hashes.size());
    Decoder decoder(file, PixelLayout::kRgbPlanes);
    Bytes out(3 * 96 * 96);
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      const std::size_t frame = i * 17 % hashes.size();  // 43 frames: visits each, far apart
      const FrameRequest request{time_of(*file, frame), out.data()};
      decoder.decode({&request, 1}, kTolerance);
      EXPECT_EQ(sha256(out), hashes[frame].get<std::string>()) << name << " frame " << frame;
    }
  }
}

TEST_F(DecoderTest, DatasetVideosInSeveralFilesEqualALinearDecode) {
  const fs::path data = fs::path(LEROBOT_TEST_DATA) / "datasets";
  for (const auto& entry : fs::recursive_directory_iterator(data / "toy_split/videos"))
    if (entry.path().extension() == ".mp4") expect_equal_to_linear_decode(entry.path());
  expect_equal_to_linear_decode(data /
                                "toy_types/videos/observation.images.video/chunk-000/file-000.mp4");
}

TEST_F(DecoderTest, H264WithBFramesEqualsALinearDecode) {
  expect_equal_to_linear_decode(make_video("-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3"));
}

TEST_F(DecoderTest, H264WithOpenGopsEqualsALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libx264 -pix_fmt yuv420p -g 8 -bf 3 -x264-params "
                 "open-gop=1:scenecut=0:b-pyramid=normal"));
}

TEST_F(DecoderTest, HevcWithOpenGopsEqualsALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libx265 -pix_fmt yuv420p -tag:v hvc1 -x265-params "
                 "log-level=none:open-gop=1:keyint=8:min-keyint=8:scenecut=0:bframes=3"));
}

TEST_F(DecoderTest, HevcWithClosedGopsEqualsALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libx265 -pix_fmt yuv420p -x265-params "
                 "log-level=none:open-gop=0:keyint=10:bframes=3"));
}

TEST_F(DecoderTest, NegativeCompositionOffsetsEqualALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3 -movflags negative_cts_offsets"));
}

TEST_F(DecoderTest, AStartAtHalfASecondEqualsALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3 -output_ts_offset 0.5"));
}

TEST_F(DecoderTest, AnEditListThatBeginsInsideAGopEqualsALinearDecode) {
  Bytes bytes = read_bytes(make_video("-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3"));
  put32(bytes, find_box(bytes, "elst") + 12, 1024 + 512 * 17);
  write_bytes(folder_ / "edit.mp4", bytes);
  expect_equal_to_linear_decode(folder_ / "edit.mp4");
}

TEST_F(DecoderTest, AnAudioTrackBetweenTheFramesDoesNotMatter) {
  const fs::path path = folder_ / "audio.mp4";
  run_ffmpeg(
      "-f lavfi -i sine=duration=2 -f lavfi -i testsrc2=size=96x64:duration=2 -map 0 -map 1 "
      "-c:a aac -c:v libx264 -g 5 -pix_fmt yuv420p -movflags +faststart " +
      path.string());
  expect_equal_to_linear_decode(path);
}

TEST_F(DecoderTest, OddFrameRatesEqualALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libx264 -pix_fmt yuv420p -g 2", "96x64", "30000/1001"));
  expect_equal_to_linear_decode(make_video("-c:v libx264 -pix_fmt yuv420p -g 2", "96x64", "12.5"));
}

TEST_F(DecoderTest, Av1EqualsALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libsvtav1 -pix_fmt yuv420p -g 2 -crf 30 -preset 12"));
  expect_equal_to_linear_decode(
      make_video("-c:v libsvtav1 -pix_fmt yuv420p -g 9 -crf 30 -preset 12", "160x90"));
}

TEST_F(DecoderTest, OddSizesAndOtherPixelFormatsEqualALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libsvtav1 -pix_fmt yuv420p -g 2 -preset 12", "97x64", "25", 0.4));
  expect_equal_to_linear_decode(
      make_video("-c:v libaom-av1 -cpu-used 8 -pix_fmt yuv420p", "97x65", "25", 0.2));
  expect_equal_to_linear_decode(make_video("-c:v libx264 -pix_fmt yuv420p", "98x66", "25", 0.4));
  for (const char* format : {"yuv444p", "yuvj420p", "yuv422p", "gray", "yuv420p10le"})
    expect_equal_to_linear_decode(
        make_video(std::string("-c:v libx264 -pix_fmt ") + format, "96x64", "25", 0.4));
  expect_equal_to_linear_decode(make_video("-c:v libx264rgb -pix_fmt rgb24", "94x62", "25", 0.4));
  expect_equal_to_linear_decode(
      make_video("-c:v libx264 -pix_fmt yuv420p -colorspace bt709", "96x64", "25", 0.4));
}

TEST_F(DecoderTest, ACameraOfOrdinarySizeEqualsALinearDecode) {
  expect_equal_to_linear_decode(
      make_video("-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 2", "640x480", "30", 0.4));
}

TEST_F(DecoderTest, LosslessTwelveBitDepthKeepsEveryCode) {
  const fs::path path =
      make_video("-c:v libx265 -pix_fmt gray12le -g 4 -x265-params lossless=1:log-level=none");
  const fs::path raw = folder_ / "gray.raw";
  run_ffmpeg(
      fmt::format("-i {} -vsync 0 -f rawvideo -pix_fmt gray12le {}", path.string(), raw.string()));
  const Bytes reference = read_bytes(raw);
  const auto file = VideoFile::open(path);
  Decoder decoder(file, PixelLayout::kGray16);
  const std::size_t frame_bytes = 2 * 96 * 64;
  ASSERT_EQ(reference.size(), 50 * frame_bytes);
  Bytes out(frame_bytes);
  for (const std::size_t frame : {7, 49, 0, 20, 21, 3}) {
    const FrameRequest request{time_of(*file, frame), out.data()};
    decoder.decode({&request, 1}, kTolerance);
    EXPECT_TRUE(std::equal(out.begin(), out.end(),
                           reference.begin() + static_cast<std::ptrdiff_t>(frame * frame_bytes)))
        << frame;
  }
}

TEST_F(DecoderTest, EightBitLumaIsWidenedAndRgbHasNone) {
  const auto gray = VideoFile::open(make_video("-c:v libx264 -pix_fmt gray -qp 0"));
  std::vector<std::uint16_t> out(96 * 64);
  const FrameRequest request{0.0, out.data()};
  Decoder(gray, PixelLayout::kGray16).decode({&request, 1}, kTolerance);
  EXPECT_LT(*std::max_element(out.begin(), out.end()), 256);
  EXPECT_GT(*std::max_element(out.begin(), out.end()), 100);
  const auto rgb = VideoFile::open(make_video("-c:v libx264rgb -pix_fmt rgb24"));
  EXPECT_THAT(
      error_of([&] {
        Decoder(rgb, PixelLayout::kGray16).decode({&request, 1}, kTolerance);
      }),
      AllOf(HasSubstr(rgb->path().string()), HasSubstr("gbrp"), HasSubstr("no luma plane")));
}

TEST_F(DecoderTest, AVideoInMemoryDecodesLikeAFile) {
  const fs::path path = make_video("-c:v libsvtav1 -pix_fmt yuv420p -g 2 -preset 12");
  const std::vector<Bytes> reference = linear_decode(path, 96, 64);
  Decoder decoder(std::make_shared<MemorySource>(read_bytes(path)), PixelLayout::kRgbPlanes);
  expect_frames(decoder, {31, 4, 4, 30, 49}, reference);
}

// ---- Work
// ------------------------------------------------------------------------------------------

TEST_F(DecoderTest, SequentialReadingDecodesNoGopAgain) {
  for (const char* options :
       {"-c:v libx264 -pix_fmt yuv420p -g 50 -bf 3", "-c:v libx264 -pix_fmt yuv420p -g 50 -bf 0",
        "-c:v libsvtav1 -pix_fmt yuv420p -g 50 -preset 12"}) {
    const auto file = VideoFile::open(make_video(options));
    Decoder decoder(file, PixelLayout::kRgbPlanes);
    Bytes out(3 * 96 * 64);
    for (std::size_t frame = 0; frame < 50; ++frame) {
      const FrameRequest request{time_of(*file, frame), out.data()};
      decoder.decode({&request, 1}, kTolerance);
    }
    // Only the first call can't know that more will follow, and drains the decoder.
    EXPECT_LE(decoder.packets_sent(), 51U) << options;
  }
}

TEST_F(DecoderTest, AWindowInOneGopSendsNothingTwiceAndNothingBehindIt) {
  const auto file = VideoFile::open(make_video("-c:v libsvtav1 -pix_fmt yuv420p -g 10 -preset 12"));
  Decoder decoder(file, PixelLayout::kRgbPlanes);
  EXPECT_EQ(decoder.distance_to(26), 7U);
  Bytes out(3 * 96 * 64);
  std::vector<FrameRequest> requests;
  for (const std::size_t frame : {26, 22, 24, 24, 22})
    requests.push_back({time_of(*file, frame), out.data()});
  decoder.decode(requests, kTolerance);
  EXPECT_EQ(decoder.packets_sent(), 7U);  // 20 .. 26
  EXPECT_EQ(decoder.distance_to(28), 2U);
  EXPECT_EQ(decoder.distance_to(25), 6U);
  EXPECT_EQ(decoder.distance_to(41), 2U);
}

TEST_F(DecoderTest, PicturesThatNobodyRefersToAreLeftOut) {
  for (const char* options :
       {"-c:v libx264 -pix_fmt yuv420p -g 50 -x264-params b-adapt=0:bframes=3:b-pyramid=none",
        "-c:v libx265 -pix_fmt yuv420p -x265-params "
        "keyint=50:b-adapt=0:bframes=3:b-pyramid=0:log-level=none"}) {
    const fs::path path = make_video(options);
    const auto file = VideoFile::open(path);
    Decoder decoder(file, PixelLayout::kRgbPlanes);
    expect_frames(decoder, {40}, linear_decode(path, 96, 64));
    EXPECT_LE(decoder.packets_sent(), 14U) << options;  // of 41 up to that frame
  }
}

TEST_F(DecoderTest, ADecoderTurnsToAnotherVideoOfTheSameKindOnly) {
  const char* options = "-c:v libx264 -pix_fmt yuv420p -g 2";
  const fs::path first = make_video(options);
  const fs::path second = make_video(options, "96x64", "25", 1.0);
  const auto file = VideoFile::open(second);
  Decoder decoder(VideoFile::open(first), PixelLayout::kRgbPlanes);
  expect_frames(decoder, {7}, linear_decode(first, 96, 64));
  ASSERT_TRUE(decoder.suits(*file));
  decoder.rebind(file);
  expect_frames(decoder, {6, 24, 8}, linear_decode(second, 96, 64));
  EXPECT_EQ(decoder.source(), file);
  EXPECT_FALSE(decoder.suits(*VideoFile::open(make_video(options, "64x64"))));
  EXPECT_FALSE(
      decoder.suits(*VideoFile::open(make_video("-c:v libx265 -x265-params log-level=0"))));
}

// ---- Times
// -----------------------------------------------------------------------------------------

TEST(WithinToleranceTest, TheBoundaryIsAcceptedAndHalfAsMuchAgainIsNot) {
  for (const double time : {0.0, 0.5, 1.7, 59.9}) {
    EXPECT_TRUE(within_tolerance(time + 1e-4, time, 1e-4)) << time;
    EXPECT_TRUE(within_tolerance(time, time + 1e-4, 1e-4)) << time;
    EXPECT_FALSE(within_tolerance(time + 1.5e-4, time, 1e-4)) << time;
  }
  EXPECT_TRUE(within_tolerance(1.0, 1.0, 0.0));
  EXPECT_FALSE(within_tolerance(std::nan(""), 1.0, 1e-4));
}

TEST(WithinToleranceTest, AFloat32TimestampAnHourInIsValid) {
  for (int frame = 108000; frame < 108300; ++frame) {
    const double exact = frame / 30.0;
    EXPECT_TRUE(within_tolerance(static_cast<float>(exact), exact, 1e-4)) << frame;
  }
  EXPECT_FALSE(within_tolerance(3600.0, 3600.0 + 1.0 / 30, 1e-4));
}

TEST_F(DecoderTest, ATimeBetweenFramesIsRefusedWithBothTimes) {
  const auto file = VideoFile::open(make_video("-c:v libx264 -pix_fmt yuv420p -g 2"));
  Decoder decoder(file, PixelLayout::kRgbPlanes);
  Bytes out(3 * 96 * 64);
  const FrameRequest requests[] = {{0.0, out.data()}, {0.05, out.data()}};
  try {
    decoder.decode(requests, kTolerance);
    FAIL() << "accepted";
  } catch (const FrameNotFound& error) {
    EXPECT_DOUBLE_EQ(error.asked_s(), 0.05);
    EXPECT_DOUBLE_EQ(error.nearest_s(), 0.04);
    EXPECT_DOUBLE_EQ(error.tolerance_s(), kTolerance);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(file->path().string()), HasSubstr("0.050000"),
                                    HasSubstr("0.040000"), HasSubstr("tolerance")));
  }
  EXPECT_EQ(decoder.packets_sent(), 0U);
  const FrameRequest beyond{2.0, out.data()};
  EXPECT_THROW(decoder.decode({&beyond, 1}, kTolerance), FrameNotFound);
  const FrameRequest boundary{0.04 + kTolerance, out.data()};
  decoder.decode({&boundary, 1}, kTolerance);
}

// ---- Damage
// ----------------------------------------------------------------------------------------

TEST_F(DecoderTest, ADamagedFrameIsNamedAndOthersStillDecode) {
  for (const char* options : {"-c:v libx264 -pix_fmt yuv420p -g 5 -bf 0",
                              "-c:v libsvtav1 -pix_fmt yuv420p -g 5 -preset 12"}) {
    const fs::path path = make_video(options);
    const std::vector<Bytes> reference = linear_decode(path, 96, 64);
    const auto intact = VideoFile::open(path);
    Bytes bytes = read_bytes(path);
    const SampleTable& samples = intact->index().samples;
    for (std::size_t i = 0; i < samples.bytes(20); ++i)
      bytes[samples.offset(20) + i] = static_cast<std::uint8_t>(0xff - 7 * i);
    Decoder decoder(std::make_shared<MemorySource>(bytes), PixelLayout::kRgbPlanes);
    Bytes out(3 * 96 * 64);
    const FrameRequest request{time_of(*intact, 21), out.data()};
    EXPECT_THAT(error_of([&] {
                  decoder.decode({&request, 1}, kTolerance);
                }),
                AllOf(HasSubstr("memory.mp4"), HasSubstr("0.8"), HasSubstr("does not decode"),
                      HasSubstr("damaged")))
        << options;
    expect_frames(decoder, {3, 31}, reference);
  }
}

TEST_F(DecoderTest, ASizeOtherThanTheDescribedOneIsRefused) {
  Bytes bytes = read_bytes(make_video("-c:v libx264 -pix_fmt yuv420p"));
  put32(bytes, find_box(bytes, "stsd") + 16 + 24, 64 << 16 | 64);
  Decoder decoder(std::make_shared<MemorySource>(bytes), PixelLayout::kRgbPlanes);
  Bytes out(3 * 96 * 64);
  const FrameRequest request{0.0, out.data()};
  EXPECT_THAT(error_of([&] {
                decoder.decode({&request, 1}, kTolerance);
              }),
              AllOf(HasSubstr("is 96x64"), HasSubstr("says 64x64")));
}

}  // namespace
}  // namespace lerobot::video
