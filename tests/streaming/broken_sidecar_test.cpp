// The corpus of deliberately broken files under tests/data/broken, one line of expectation each,
// and every simple mutation of a good sidecar.
#include <map>

#include "lerobot/video/mp4_index.h"
#include "tests/streaming/sidecar_fixture.h"
#include "tests/video/test_videos.h"

namespace lerobot::streaming {
namespace {

using ::testing::HasSubstr;
using video::Bytes;

class BrokenFilesTest : public SidecarTest {
 protected:
  /// Opens every file of the folder and compares its message with the expected part.
  static void check(const std::string& folder, const std::function<void(const fs::path&)>& open) {
    const fs::path root = test_data("broken/" + folder);
    std::ifstream expectations(root / "EXPECTATIONS");
    std::size_t count = 0;
    for (std::string line; std::getline(expectations, line); ++count) {
      const std::size_t tab = line.find('\t');
      ASSERT_NE(tab, std::string::npos) << line;
      const fs::path path = root / line.substr(0, tab);
      const std::string message = error_of([&] { open(path); });
      EXPECT_THAT(message, HasSubstr(line.substr(tab + 1))) << path.filename();
      EXPECT_THAT(message, HasSubstr(path.filename().string())) << "the message names the file";
    }
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(root)) ++files;
    EXPECT_EQ(count + 1, files) << "every file has its expectation";
  }

  static void read_all(const fs::path& path) {
    const SidecarFile file(path);
    for (std::size_t i = 0; i < file.manifest().videos.size(); ++i) file.arrays(i);
  }
};

TEST_F(BrokenFilesTest, EverySidecarOfTheCorpusGivesItsMessage) { check("npz", read_all); }

TEST_F(BrokenFilesTest, EveryMp4OfTheCorpusGivesItsMessage) {
  check("mp4", [](const fs::path& path) {
    LocalPayload payload(path.parent_path());
    PayloadReader reader(payload, path.filename().string(), {});
    video::Mp4Index::parse(reader, video::Mp4Use::kIndex);
  });
}

TEST_F(BrokenFilesTest, EveryIndexOfTheCorpusGivesItsMessage) {
  check("index", [](const fs::path& path) {
    const IndexFile file(path);
    for (std::size_t i = 0; i < file.size(); ++i) file.samples(i);
  });
}

TEST_F(BrokenFilesTest, EveryFlipAndCutOfASidecarIsAnErrorOrHarmless) {
  const Bytes original = video::read_bytes(toy_sidecar());
  const SidecarFile good(toy_sidecar());
  const fs::path path = folder_ / "broken.npz";
  for (std::size_t at = 0; at < original.size(); ++at) {
    Bytes broken = original;
    broken[at] ^= static_cast<std::uint8_t>(1 + at % 255);
    video::write_bytes(path, broken);
    try {
      const SidecarFile file(path);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(file.arrays(i).pts, good.arrays(i).pts) << at;
        EXPECT_EQ(file.arrays(i).sizes, good.arrays(i).sizes) << at;
      }
    } catch (const Error&) {
    }
  }
  for (std::size_t size = 0; size < original.size(); size += 5) {
    video::write_bytes(path, Bytes(original.begin(), original.begin() + static_cast<int>(size)));
    EXPECT_THROW(SidecarFile{path}, Error) << size;
  }
}

// ---- The reader of remote files
// -----------------------------------------------------------------------------

/// Counts what is read of files in memory.
class MemoryPayload final : public Payload {
 public:
  explicit MemoryPayload(Bytes bytes) : bytes_(std::move(bytes)) {}
  std::string describe(std::string_view path) const override { return std::string(path); }
  std::uint64_t size(const std::string&) override { return bytes_.size(); }
  std::optional<std::string> fingerprint(const std::string&) override { return std::nullopt; }
  void read(std::span<const ByteRange> ranges) override {
    for (const ByteRange& range : ranges) {
      reads.emplace_back(range.offset, range.out.size());
      ASSERT_LE(range.offset + range.out.size(), bytes_.size());
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(range.offset), range.out.size(),
                  range.out.begin());
    }
  }
  void cancel() override {}
  std::uint64_t bytes_read() const override {
    std::uint64_t total = 0;
    for (const auto& [offset, size] : reads) total += size;
    return total;
  }

  std::vector<std::pair<std::uint64_t, std::uint64_t>> reads;

 private:
  Bytes bytes_;
};

/// The toy video with `padding` more bytes of media data, moov in front or behind.
Bytes long_video(std::size_t padding, bool moov_first) {
  const Bytes toy = video::read_bytes(
      test_data("datasets/toy_h264/videos/observation.images.front/chunk-000/file-000.mp4"));
  const std::size_t moov = video::find_box(toy, "moov") - 8;
  const std::size_t moov_end = moov + video::get32(toy, moov);
  const std::size_t mdat = video::find_box(toy, "mdat") - 8;
  const auto at = [&](std::size_t i) { return toy.begin() + static_cast<std::ptrdiff_t>(i); };
  Bytes movie(at(moov), at(moov_end));
  Bytes media(at(mdat), toy.end());
  media.resize(media.size() + padding);
  video::put32(media, 0, static_cast<std::uint32_t>(media.size()));
  if (moov_first) {
    Bytes file(toy.begin(), at(mdat));
    file.insert(file.end(), media.begin(), media.end());
    return file;
  }
  Bytes file(toy.begin(), at(moov));
  const std::size_t offsets = video::find_box(movie, "stco") + 8;
  video::put32(movie, offsets, static_cast<std::uint32_t>(file.size() + 8));
  file.insert(file.end(), media.begin(), media.end());
  file.insert(file.end(), movie.begin(), movie.end());
  return file;
}

TEST(PayloadReaderTest, AnIndexInFrontCostsOneReadAndNoMediaData) {
  MemoryPayload payload(long_video(20 << 20, true));
  PayloadReader reader(payload, "a.mp4", {});
  const auto index = video::Mp4Index::parse(reader, video::Mp4Use::kIndex);
  EXPECT_EQ(index.samples.size(), 43U);
  EXPECT_TRUE(index.moov_before_mdat);
  EXPECT_EQ(payload.reads.size(), 1U);
  EXPECT_EQ(payload.bytes_read(), 512U << 10);
}

TEST(PayloadReaderTest, AnIndexBehindTheMediaDataCostsTwoReads) {
  MemoryPayload payload(long_video(20 << 20, false));
  PayloadReader reader(payload, "a.mp4", {});
  const auto index = video::Mp4Index::parse(reader, video::Mp4Use::kIndex);
  EXPECT_EQ(index.samples.size(), 43U);
  EXPECT_FALSE(index.moov_before_mdat);
  EXPECT_EQ(payload.reads.size(), 2U);
  EXPECT_LT(payload.bytes_read(), 600U << 10);
}

TEST(PayloadReaderTest, AnIndexLargerThanABlockIsReadWithoutReadingAnyByteTwice) {
  MemoryPayload payload(long_video(1 << 20, true));
  ProbeOptions options;
  options.block_bytes = 100;
  PayloadReader reader(payload, "a.mp4", options);
  EXPECT_EQ(video::Mp4Index::parse(reader, video::Mp4Use::kIndex).samples.size(), 43U);
  for (std::size_t i = 1; i < payload.reads.size(); ++i)
    EXPECT_GE(payload.reads[i].first, payload.reads[i - 1].first + payload.reads[i - 1].second);
}

TEST(PayloadReaderTest, TheLimitOfTheProbeIsKeptAndNamed) {
  MemoryPayload payload(long_video(1 << 20, true));
  ProbeOptions options;
  options.block_bytes = 100;
  options.max_bytes = 500;
  PayloadReader reader(payload, "a.mp4", options);
  EXPECT_THAT(error_of([&] { video::Mp4Index::parse(reader, video::Mp4Use::kIndex); }),
              ::testing::AllOf(HasSubstr("a.mp4: could not find the complete MP4 index"),
                               HasSubstr("--max-probe-mb")));
  EXPECT_LE(payload.bytes_read(), 500U);
}

}  // namespace
}  // namespace lerobot::streaming
