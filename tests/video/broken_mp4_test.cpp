// Deliberately broken files: every mutation gives an Error or a valid result, takes little memory
// and never crashes. Deterministic.

#include <algorithm>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "lerobot/video/decoder.h"
#include "lerobot/video/mp4_index.h"
#include "tests/video/test_videos.h"

#if !defined(__SANITIZE_ADDRESS__)
namespace {
std::size_t largest_allocation = 0;  // by operator new; the tests that look at it run one thread
}
__attribute__((noinline)) void* operator new(std::size_t size) {
  largest_allocation = std::max(largest_allocation, size);
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

namespace lerobot::video {
namespace {

class BrokenMp4Test : public VideoTest {
 protected:
  void SetUp() override {
    VideoTest::SetUp();
    for (const char* options : {"-c:v libx264 -pix_fmt yuv420p -g 4 -bf 2 -output_ts_offset 0.5",
                                "-c:v libsvtav1 -pix_fmt yuv420p -g 2 -preset 12 "
                                "-movflags +faststart"})
      originals_.push_back(read_bytes(make_video(options, "64x64", "25", 0.4)));
  }

  /// Opens and, when that goes well, decodes the first and the last frame.
  static void try_all(const Bytes& bytes) {
#if !defined(__SANITIZE_ADDRESS__)
    largest_allocation = 0;
#endif
    try {
      const auto source = std::make_shared<MemorySource>(bytes);
      const Mp4Index& index = source->index();
      ASSERT_LE(index.samples.size(), bytes.size());
#if !defined(__SANITIZE_ADDRESS__)
      ASSERT_LE(largest_allocation, 16 * bytes.size());
#endif
      const std::size_t pixels = static_cast<std::size_t>(index.width) * index.height;
      if (pixels > 1 << 16) return;
      Decoder decoder(source, PixelLayout::kRgbPlanes);
      Bytes out(3 * pixels);
      for (const std::size_t frame : {std::size_t{0}, index.frame_count() - 1}) {
        const FrameRequest request{index.presentation_time(index.sample_of_frame(frame)),
                                   out.data()};
        decoder.decode({&request, 1}, 1e-4);
      }
    } catch (const Error&) {
#if !defined(__SANITIZE_ADDRESS__)
      ASSERT_LE(largest_allocation, 16 * bytes.size() + (1 << 20));
#endif
    }
  }

  std::vector<Bytes> originals_;
};

TEST_F(BrokenMp4Test, CutAtEveryByte) {
  for (const Bytes& original : originals_)
    for (std::size_t size = 0; size < original.size(); ++size) {
      Bytes cut(original.begin(), original.begin() + static_cast<std::ptrdiff_t>(size));
      try_all(cut);
      if (HasFatalFailure()) FAIL() << "cut at " << size;
    }
}

TEST_F(BrokenMp4Test, EveryWordOfTheHeaderReplaced) {
  for (const Bytes& original : originals_) {
    const std::size_t begin = find_box(original, "moov") - 8;
    const std::size_t end = begin + get32(original, begin);
    for (std::size_t at = begin; at + 4 <= end; ++at)
      for (const std::uint32_t value : {0U, 1U, 0x80000000U, 0xffffffffU, 0x7fffffffU}) {
        Bytes bytes = original;
        put32(bytes, at, value);
        try_all(bytes);
        if (HasFatalFailure()) FAIL() << "byte " << at << " value " << value;
      }
  }
}

TEST_F(BrokenMp4Test, EveryBoxSizeAndTypeOfTheFileReplaced) {
  for (const Bytes& original : originals_)
    for (std::size_t at = 0; at + 4 <= std::min<std::size_t>(original.size(), 64); ++at)
      for (const std::uint32_t value : {0U, 1U, 7U, 8U, 0x80000000U, 0xffffffffU}) {
        Bytes bytes = original;
        put32(bytes, at, value);
        try_all(bytes);
        if (HasFatalFailure()) FAIL() << "byte " << at << " value " << value;
      }
}

TEST_F(BrokenMp4Test, CodedFramesFilledWithOtherBytes) {
  for (const Bytes& original : originals_) {
    SpanReader reader(original, "original.mp4");
    const SampleTable samples = Mp4Index::parse(reader).samples;
    std::uint32_t state = 12345;
    for (int round = 0; round < 300; ++round) {
      Bytes bytes = original;
      for (int k = 0; k < 1 + round % 8; ++k) {
        state = state * 1664525 + 1013904223;
        const std::size_t sample = state / 65536 % samples.size();
        state = state * 1664525 + 1013904223;
        const std::size_t at = samples.offset(sample) + state / 65536 % samples.bytes(sample);
        bytes[at] = static_cast<std::uint8_t>(state >> 8);
      }
      try_all(bytes);
      if (HasFatalFailure()) FAIL() << "round " << round;
    }
  }
}

}  // namespace
}  // namespace lerobot::video
