#include "lerobot/video/decoder_cache.h"

#include <atomic>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/process.h"
#include "tests/video/test_videos.h"

namespace lerobot::video {
namespace {

constexpr double kTolerance = 1e-4;
constexpr char kOptions[] = "-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 2";

double time_of(const VideoFile& file, std::size_t frame) {
  return file.index().presentation_time(file.index().sample_of_frame(frame));
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class DecoderCacheTest : public VideoTest {};

TEST_F(DecoderCacheTest, ThreadsShareItAndGetTheirOwnFrames) {
  const fs::path path = make_video(kOptions);
  const auto file = VideoFile::open(path);
  const std::vector<Bytes> reference = linear_decode(path, 96, 64);
  DecoderCache cache(2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      Bytes out(3 * 96 * 64);
      for (int i = 0; i < 200; ++i) {
        const std::size_t frame = random() % reference.size();
        const FrameRequest request{time_of(*file, frame), out.data()};
        cache.decode(file, PixelLayout::kRgbPlanes, {&request, 1}, kTolerance);
        if (out != reference[frame]) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(cache.counters().decoders, 2U);  // the surplus of four threads is closed again
  EXPECT_GE(cache.counters().packets_sent, 800U);
}

TEST_F(DecoderCacheTest, TheDecoderWhosePositionSuitsBestIsTaken) {
  const auto file = VideoFile::open(make_video("-c:v libsvtav1 -pix_fmt yuv420p -g 50 -preset 12"));
  DecoderCache cache(4);
  Bytes out(3 * 96 * 64);
  Bytes other(3 * 96 * 64);
  // Two readers go through one file at different places: after the first step of each, every frame
  // costs one packet, whoever gets which decoder.
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (const std::size_t start : {0U, 25U})
    threads.emplace_back([&, start] {
      Bytes mine(3 * 96 * 64);
      ++ready;
      while (ready < 2) std::this_thread::yield();
      for (std::size_t i = 0; i < 20; ++i) {
        const FrameRequest request{time_of(*file, start + i), mine.data()};
        cache.decode(file, PixelLayout::kRgbPlanes, {&request, 1}, kTolerance);
      }
    });
  for (std::thread& thread : threads) thread.join();
  // Alternating on one thread, both positions being idle now:
  const std::uint64_t before = cache.counters().packets_sent;
  if (cache.counters().decoders == 2) {
    for (std::size_t i = 0; i < 4; ++i) {
      const FrameRequest early{time_of(*file, 20 + i), out.data()};
      cache.decode(file, PixelLayout::kRgbPlanes, {&early, 1}, kTolerance);
      const FrameRequest late{time_of(*file, 45 + i), other.data()};
      cache.decode(file, PixelLayout::kRgbPlanes, {&late, 1}, kTolerance);
    }
    EXPECT_EQ(cache.counters().packets_sent - before, 8U);
  }
}

TEST_F(DecoderCacheTest, AnIdleDecoderThatKeepsNothingFreesItsVideoAndServesTheNext) {
  const fs::path path = make_video(kOptions);
  const std::vector<Bytes> reference = linear_decode(path, 96, 64);
  DecoderCache cache(4, DecoderCache::Idle::kKeepsNothing);
  Bytes out(3 * 96 * 64);
  for (std::size_t frame : {7u, 2u, 3u}) {
    auto file = VideoFile::open(path);
    const FrameRequest request{time_of(*file, frame), out.data()};
    cache.decode(file, PixelLayout::kRgbPlanes, {&request, 1}, kTolerance);
    EXPECT_EQ(out, reference[frame]);
    EXPECT_EQ(file.use_count(), 1);
  }
  EXPECT_EQ(cache.counters().opened, 1u);
  EXPECT_EQ(cache.counters().rebound, 2u);
}

TEST_F(DecoderCacheTest, AnErrorLeavesTheCacheUsable) {
  const auto file = VideoFile::open(make_video(kOptions));
  DecoderCache cache(1);
  Bytes out(3 * 96 * 64);
  const FrameRequest between{0.05, out.data()};
  EXPECT_THROW(cache.decode(file, PixelLayout::kRgbPlanes, {&between, 1}, kTolerance),
               FrameNotFound);
  const FrameRequest good{0.04, out.data()};
  cache.decode(file, PixelLayout::kRgbPlanes, {&good, 1}, kTolerance);
  cache.decode(file, PixelLayout::kGray16, {}, kTolerance);  // nothing asked, nothing opened
  EXPECT_EQ(cache.counters().decoders, 1U);
  EXPECT_EQ(cache.counters().opened, 1U);
}

TEST_F(DecoderCacheTest, FiveHundredVideosInRandomOrderKeepMemoryAndDescriptorsFlat) {
  const Bytes bytes = read_bytes(make_video(kOptions, "96x64", "25", 0.4));
  std::vector<fs::path> paths;
  for (int i = 0; i < 500; ++i) {
    paths.push_back(folder_ / fmt::format("copy-{}.mp4", i));
    write_bytes(paths.back(), bytes);
  }
  VideoFileCache files(32);
  DecoderCache decoders(8);
  std::mt19937 random(3);
  Bytes out(3 * 96 * 64);
  const auto read = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto file = files.open(paths[random() % paths.size()]);
      const FrameRequest request{time_of(*file, random() % 10), out.data()};
      decoders.decode(file, PixelLayout::kRgbPlanes, {&request, 1}, kTolerance);
    }
  };
  read(600);
  const std::uint64_t resident = process_memory().resident;
  const std::size_t descriptors = open_descriptors();
  const std::uint64_t opened = decoders.counters().opened;
  read(2000);
#if !defined(__SANITIZE_ADDRESS__)  // which keeps freed memory for a while
  EXPECT_LT(process_memory().resident, resident + (8U << 20));
#endif
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(files.size(), 32U);
  EXPECT_EQ(decoders.counters().decoders, 8U);
  EXPECT_EQ(decoders.counters().opened, opened);  // contexts are kept and flushed, not reopened
}

TEST_F(DecoderCacheTest, AFileIsOpenedOnceAndTheOldestIsClosed) {
  const fs::path first = make_video(kOptions, "96x64", "25", 0.2);
  const fs::path second = folder_ / "second.mp4";
  fs::copy_file(first, second);
  VideoFileCache files(1);
  const auto opened = files.open(first);
  EXPECT_EQ(files.open(first), opened);
  files.open(second);
  EXPECT_EQ(files.size(), 1U);
  EXPECT_NE(files.open(first), opened);
  EXPECT_THROW(files.open(folder_ / "absent.mp4"), Error);
}

}  // namespace
}  // namespace lerobot::video
