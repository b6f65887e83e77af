// Real videos for the tests: made by ffmpeg into a temporary folder, and decoded by it from start
// to end as the reference.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/video/packet_source.h"
#include "lerobot/video/video_file.h"
#include "tests/support/error_of.h"

namespace lerobot::video {

using Bytes = std::vector<std::uint8_t>;

inline Bytes read_bytes(const fs::path& path) {
  const std::string text = read_text_file(path);
  return {text.begin(), text.end()};
}

inline void write_bytes(const fs::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// A fixture with a folder of its own, removed at the end.
class VideoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("lerobot_video_{}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static void run_ffmpeg(const std::string& arguments) {
    const std::string command = "ffmpeg -nostdin -v error -y " + arguments + " >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  /// `seconds` of a moving test picture, coded as `options` say.
  fs::path make_video(const std::string& options, const std::string& size = "96x64",
                      const std::string& rate = "25", double seconds = 2.0) {
    fs::path path = folder_ / fmt::format("{}.mp4", ++made_);
    run_ffmpeg(fmt::format("-f lavfi -i testsrc2=size={}:rate={}:duration={} {} {}", size, rate,
                           seconds, options, path.string()));
    return path;
  }

  /// Every frame as ffmpeg decodes the file from its start, in presentation order, uint8 [3, H, W].
  std::vector<Bytes> linear_decode(const fs::path& path, int width, int height) {
    const fs::path raw = folder_ / "linear.raw";
    run_ffmpeg(fmt::format("-threads 1 -i {} -map 0:v:0 -vsync 0 -f rawvideo -pix_fmt rgb24 {}",
                           path.string(), raw.string()));
    const Bytes packed = read_bytes(raw);
    const std::size_t plane = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
    EXPECT_EQ(packed.size() % (3 * plane), 0U);
    std::vector<Bytes> frames(packed.size() / (3 * plane), Bytes(3 * plane));
    for (std::size_t f = 0; f < frames.size(); ++f)
      for (std::size_t i = 0; i < 3 * plane; ++i)
        frames[f][i % 3 * plane + i / 3] = packed[f * 3 * plane + i];
    return frames;
  }

  fs::path folder_;
  int made_ = 0;
};

/// A video in memory, as a fetched range would be.
class MemorySource final : public PacketSource {
 public:
  explicit MemorySource(Bytes bytes) : bytes_(std::move(bytes)) {
    SpanReader reader(bytes_, "memory.mp4");
    index_ = Mp4Index::parse(reader);
  }
  std::string_view name() const override { return "memory.mp4"; }
  const Mp4Index& index() const override { return index_; }
  std::span<const std::uint8_t> packet(std::size_t sample) const override {
    return std::span<const std::uint8_t>(bytes_).subspan(index_.samples.offset(sample),
                                                         index_.samples.bytes(sample));
  }

 private:
  Bytes bytes_;
  Mp4Index index_;
};

// ---- Crafting bytes
// -------------------------------------------------------------------------------

/// Where the payload of the `occurrence`-th box of that type begins.
inline std::size_t find_box(const Bytes& bytes, std::string_view type, int occurrence = 0) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::size_t at = text.find(type);
  for (; occurrence > 0; --occurrence) at = text.find(type, at + 1);
  EXPECT_NE(at, std::string_view::npos) << type;
  return at + 4;
}

inline void put32(Bytes& bytes, std::size_t at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
}

inline std::uint32_t get32(const Bytes& bytes, std::size_t at) {
  return static_cast<std::uint32_t>(bytes[at]) << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 |
         bytes[at + 3];
}

/// A box of `payload`; with a 64-bit size if `large`.
inline Bytes make_box(std::string_view type, const Bytes& payload, bool large = false) {
  Bytes box(large ? 16 : 8);
  put32(box, 0, large ? 1 : static_cast<std::uint32_t>(payload.size() + 8));
  std::copy(type.begin(), type.end(), box.begin() + 4);
  if (large) put32(box, 12, static_cast<std::uint32_t>(payload.size() + 16));
  box.insert(box.end(), payload.begin(), payload.end());
  return box;
}

/// Big-endian 32-bit words.
inline Bytes words(std::initializer_list<std::uint32_t> values) {
  Bytes bytes(4 * values.size());
  std::size_t at = 0;
  for (const std::uint32_t value : values) {
    put32(bytes, at, value);
    at += 4;
  }
  return bytes;
}

inline Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes result;
  for (const Bytes& part : parts) result.insert(result.end(), part.begin(), part.end());
  return result;
}

}  // namespace lerobot::video
