#include "lerobot/streaming/episode_reader.h"

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/streaming/stream_fixture.h"
#include "tests/support/error_of.h"

namespace lerobot::streaming {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Counts what is read of each file.
class CountingPayload final : public Payload {
 public:
  explicit CountingPayload(const fs::path& root) : inner_(root) {}

  std::string describe(std::string_view path) const override { return inner_.describe(path); }
  std::uint64_t size(const std::string& path) override { return inner_.size(path); }
  std::optional<std::string> fingerprint(const std::string& path) override {
    return inner_.fingerprint(path);
  }
  void read(std::span<const ByteRange> ranges) override {
    for (const ByteRange& range : ranges) {
      ++reads[range.path];
      bytes[range.path] += range.out.size();
    }
    inner_.read(ranges);
  }
  void cancel() override { inner_.cancel(); }
  std::uint64_t bytes_read() const override { return inner_.bytes_read(); }

  std::map<std::string, int> reads;
  std::map<std::string, std::uint64_t> bytes;

 private:
  LocalPayload inner_;
};

constexpr char kData[] = "data/chunk-000/file-000.parquet";
constexpr char kVideo[] = "videos/observation.images.top/chunk-000/file-000.mp4";

class EpisodeReaderTest : public testing::Test {
 protected:
  /// Eight episodes of 25 frames, a row group each.
  void SetUp() override {
    make_dataset(root(), std::vector<std::int64_t>(8, 25), 25.0, "25", {}, 25);
    ASSERT_FALSE(HasFatalFailure());
    streamed_ = open_streamed(root(), folder_.path() / "home");
    payload_ = std::make_shared<CountingPayload>(root());
  }
  fs::path root() const { return folder_.path() / "dataset"; }

  TemporaryFolder folder_;
  StreamedDataset streamed_;
  std::shared_ptr<CountingPayload> payload_;
};

TEST_F(EpisodeReaderTest, ReadsOnlyTheEpisodesRowGroupAndTheFooterOnce) {
  const auto reader = streamed_.source(std::nullopt, payload_).reader;
  reader->fetch(3);
  const int with_footer = payload_->reads[kData];
  const std::uint64_t before = payload_->bytes[kData];
  EXPECT_EQ(with_footer, 2);
  reader->fetch(5);
  EXPECT_EQ(payload_->reads[kData], 3);
  EXPECT_LT(payload_->bytes[kData] - before, fs::file_size(root() / kData) / 6);
}

TEST_F(EpisodeReaderTest, FetchesNoMoreOfAVideoThanItsFramesNeedAndReserves) {
  const auto reader = streamed_.source(std::nullopt, payload_).reader;
  std::uint64_t fetched = 0;
  for (std::int64_t episode = 0; episode < 8; ++episode) {
    const auto data = reader->fetch(episode);
    EXPECT_LE(data->payload_bytes, reader->reserved_bytes(episode));
    EXPECT_LE(reader->reserved_bytes(episode), reader->reserved_bytes_bound(episode));
    fetched += data->payload_bytes;
  }
  EXPECT_EQ(payload_->reads[kVideo], 8);
  EXPECT_EQ(payload_->bytes[kVideo], fetched);
  // A keyframe at every second frame: an episode of 25 may begin one frame early.
  EXPECT_LT(static_cast<double>(fetched),
            1.05 * static_cast<double>(fs::file_size(root() / kVideo)));
}

TEST_F(EpisodeReaderTest, RowGroupsWithoutStatisticsAreAllReadAndFiltered) {
  auto table = dataset::read_table(root() / kData);
  auto file = arrow::io::FileOutputStream::Open((root() / kData).string()).ValueOrDie();
  const auto plain = parquet::WriterProperties::Builder().disable_statistics()->build();
  ASSERT_TRUE(
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, 10, plain).ok());
  ASSERT_TRUE(file->Close().ok());
  const auto reader = streamed_.source().reader;
  const auto episode = reader->fetch(6);
  EXPECT_EQ(episode->table.size(), 25);
  EXPECT_EQ(episode->table.column("frame_index").integers().back(), 24);
}

TEST_F(EpisodeReaderTest, AFileThatIsRewrittenDuringTheRunIsNoticed) {
  const auto reader = streamed_.source().reader;
  reader->fetch(0);
  // The same size and other bytes in the middle, a moment later.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::fstream video(root() / kVideo, std::ios::in | std::ios::out | std::ios::binary);
  video.seekp(4000);
  video << "other bytes";
  video.close();
  EXPECT_THAT(error_of([&] { reader->fetch(1); }),
              AllOf(HasSubstr("episode 1"), HasSubstr("file-000.mp4"),
                    HasSubstr("changed during the run")));
}

TEST_F(EpisodeReaderTest, AFrameWithoutAPictureIsNamedBeforeItIsAskedFor) {
  dataset::DatasetCopy copy("toy_h264");
  copy.edit_episodes(
      dataset::set_double("videos/observation.images.wrist/from_timestamp", 2, 2.13));
  const auto streamed = open_streamed(copy.root(), folder_.path() / "home");
  EXPECT_THAT(error_of([&] { streamed.source().reader->fetch(2); }),
              AllOf(HasSubstr("episode 2, camera observation.images.wrist, frame 0"),
                    HasSubstr("no frame within 0.0001 s of 2.13 s")));
}

TEST_F(EpisodeReaderTest, AVideoOfAnotherSizeThanDeclaredIsRefused) {
  dataset::DatasetCopy copy("toy_h264");
  copy.edit_info([](Json& info) {
    info["features"]["observation.images.front"]["shape"] = {48, 96, 3};
  });
  const auto streamed = open_streamed(copy.root(), folder_.path() / "home");
  EXPECT_THAT(error_of([&] { streamed.source().reader->fetch(0); }),
              AllOf(HasSubstr("camera observation.images.front"), HasSubstr("96x96"),
                    HasSubstr("declares 96x48")));
}

TEST_F(EpisodeReaderTest, AMissingDataFileIsNamed) {
  fs::remove(root() / kData);
  EXPECT_THAT(error_of([&] { streamed_.source().reader->fetch(0); }),
              AllOf(HasSubstr(kData), HasSubstr("is missing")));
}

TEST_F(EpisodeReaderTest, ADamagedDataFileIsNamed) {
  const std::string whole = read_text_file(root() / kData);
  for (const std::size_t bytes : {std::size_t{3}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(root() / kData, std::ios::binary) << whole.substr(0, bytes);
    EXPECT_THAT(error_of([&] { streamed_.source().reader->fetch(0); }), HasSubstr(kData)) << bytes;
  }
  for (std::size_t at = whole.size() - 200; at < whole.size(); at += 3) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    std::ofstream(root() / kData, std::ios::binary) << damaged;
    error_of([&] { streamed_.source().reader->fetch(0); });  // an Error or none, never a crash
  }
}

}  // namespace
}  // namespace lerobot::streaming
