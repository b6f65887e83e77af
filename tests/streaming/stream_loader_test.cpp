#include "lerobot/streaming/stream_loader.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/streaming/stream_fixture.h"
#include "tests/support/error_of.h"

namespace lerobot::streaming {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StreamLoaderTest : public testing::Test {
 protected:
  fs::path home() const { return folder_.path() / "home"; }
  fs::path root() const { return folder_.path() / "dataset"; }

  TemporaryFolder folder_;
};

config::DeltaIndices windows(std::vector<std::int64_t> observation,
                             std::vector<std::int64_t> action) {
  config::DeltaIndices indices;
  indices.image = observation;
  indices.observation = std::move(observation);
  indices.action = std::move(action);
  return indices;
}

std::vector<std::int64_t> range(std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(to - from));
  std::iota(values.begin(), values.end(), from);
  return values;
}

/// Reads `epochs` of a stream and compares each sample; every frame comes as often as there are
/// epochs, when they end with a batch.
void compare_with_map_style(const StreamedDataset& streamed, std::int64_t num_workers,
                            std::int64_t batch_size, std::int64_t epochs,
                            std::optional<std::vector<std::int64_t>> episodes = std::nullopt) {
  const auto map = dataset::MapDataset::open(
      streamed.metadata, {.episodes = episodes, .windows = streamed.windows, .tolerance_s = 1e-4});
  const StreamSource source = streamed.source(episodes);
  StreamLoader loader(source, stream_options(source, num_workers, batch_size, 3));
  video::DecoderCache decoders(8);
  std::map<std::int64_t, std::int64_t> visits;
  const std::int64_t batches = map->size() * epochs / batch_size;
  for (std::int64_t i = 0; i < batches; ++i) {
    const dataset::Batch batch = loader.next();
    ASSERT_EQ(batch.size(), batch_size);
    expect_equal_to_map_style(batch, *map, decoders);
    if (testing::Test::HasFatalFailure()) return;
    for (const std::int64_t frame : batch.frame_index) ++visits[frame];
  }
  if (batches * batch_size == map->size() * epochs && num_workers <= 1) {
    EXPECT_EQ(static_cast<std::int64_t>(visits.size()), map->size());
    for (const auto& [frame, count] : visits) EXPECT_EQ(count, epochs) << "frame " << frame;
  }
}

class EveryFixture : public StreamLoaderTest, public testing::WithParamInterface<const char*> {};

TEST_P(EveryFixture, SamplesEqualTheMapStyleOnes) {
  const auto streamed =
      open_streamed(dataset::fixture(GetParam()), home(), windows({-1, 0}, range(0, 5)));
  for (const std::int64_t workers : {0, 1, 3}) {
    compare_with_map_style(streamed, workers, 1, 1);
    compare_with_map_style(streamed, workers, 4, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Datasets, EveryFixture,
                         testing::Values("toy_h264", "toy_av1", "toy_split", "toy_types",
                                         "toy_state"));

TEST_F(StreamLoaderTest, SamplesOfASelectionEqualTheMapStyleOnes) {
  const auto streamed =
      open_streamed(dataset::fixture("toy_split"), home(), windows({}, range(0, 5)));
  compare_with_map_style(streamed, 2, 3, 2, std::vector<std::int64_t>{1, 4, 5, 7});
}

struct VideoCase {
  const char* name;
  MadeVideo made;
  double fps = 25.0;
  const char* rate = "25";
};

class EveryVideo : public StreamLoaderTest, public testing::WithParamInterface<VideoCase> {};

TEST_P(EveryVideo, SamplesEqualTheMapStyleOnes) {
  const VideoCase& video = GetParam();
  make_dataset(root(), {17, 30, 9, 24}, video.fps, video.rate, video.made, 13);
  ASSERT_FALSE(HasFatalFailure());
  const auto streamed = open_streamed(root(), home(), windows({-3, 0, 2}, range(0, 4)));
  compare_with_map_style(streamed, 1, 4, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Videos, EveryVideo,
    testing::Values(
        VideoCase{"keyframe_every_second_frame", {}},
        VideoCase{"b_frames", {"-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 12 -bf 3"}},
        VideoCase{"open_gop",
                  {"-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 10 -bf 3 -x264-params "
                   "open-gop=1:keyint=10:min-keyint=10:scenecut=0"}},
        VideoCase{"one_keyframe", {"-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 1000 -bf 2"}},
        VideoCase{"one_file_an_episode", {.episodes_per_file = {1, 1, 1, 1}}},
        VideoCase{"two_files", {.episodes_per_file = {3, 1}}},
        VideoCase{"fractional_fps", {}, 30000.0 / 1001.0, "30000/1001"},
        VideoCase{"starts_late", {.remux_options = "-output_ts_offset 1.5"}},
        VideoCase{"negative_composition_offsets",
                  {.codec_options = "-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 12 -bf 3",
                   .remux_options = "-movflags negative_cts_offsets"}},
        VideoCase{"hidden_frames",
                  {.codec_options = "-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 12 -bf 2",
                   .hidden_frames = 7}},
        VideoCase{"index_at_the_end", {.remux_options = "-movflags -faststart"}},
        VideoCase{"hevc",
                  {"-c:v libx265 -preset ultrafast -pix_fmt yuv420p -x265-params "
                   "keyint=8:log-level=none"}}),
    [](const auto& info) { return info.param.name; });

TEST_F(StreamLoaderTest, LongEpisodesAndWindowsEqualTheMapStyleOnes) {
  make_dataset(root(), {300, 41}, 30.0, "30",
               {"-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 15 -bf 2"}, 50);
  ASSERT_FALSE(HasFatalFailure());
  const auto streamed = open_streamed(root(), home(), windows({-40, 0}, range(0, 120)));
  compare_with_map_style(streamed, 1, 11, 1);
}

TEST_F(StreamLoaderTest, TheOrderIsLeRobots) {
  const auto streamed = open_streamed(dataset::fixture("toy_h264"), home());
  for (const std::int64_t workers : {0, 1}) {
    const Json oracle = read_json_file(fs::path(LEROBOT_TEST_DATA) / "oracles" / "streaming_order" /
                                       fmt::format("toy_h264_stream_w{}.json", workers));
    const StreamSource source = streamed.source();
    StreamLoader loader(source, stream_options(source, workers, 4));
    std::size_t at = 0;
    while (at + 4 <= oracle["first_pairs"].size()) {
      const dataset::Batch batch = loader.next();
      for (std::int64_t row = 0; row < 4; ++row, ++at) {
        EXPECT_EQ(batch.at("episode_index")[row].item().toLong(),
                  oracle["first_pairs"][at][0].get<std::int64_t>());
        EXPECT_EQ(batch.at("frame_index")[row].item().toLong(),
                  oracle["first_pairs"][at][1].get<std::int64_t>());
      }
    }
  }
}

std::vector<std::int64_t> frames_of(StreamLoader& loader, int batches) {
  std::vector<std::int64_t> frames;
  for (int i = 0; i < batches; ++i) {
    const dataset::Batch batch = loader.next();
    frames.insert(frames.end(), batch.frame_index.begin(), batch.frame_index.end());
  }
  return frames;
}

TEST_F(StreamLoaderTest, TheOrderDoesNotDependOnThreadsQueuesOrCaches) {
  const auto streamed = open_streamed(dataset::fixture("toy_split"), home());
  const StreamSource source = streamed.source();
  std::vector<std::int64_t> reference;
  for (int variant = 0; variant < 6; ++variant) {
    StreamLoaderOptions options = stream_options(source, 2, 3, 2);
    options.decode_threads = 1 + variant;
    options.fetch_threads = 1 + variant % 3;
    options.samples_ahead = variant % 2 == 0 ? 1 : 40;
    options.batches_ahead = 1 + variant;
    options.plan.prefetch_episodes = variant % 4;
    options.decoder_cache_size = 1 + variant % 2;
    StreamLoader loader(streamed.source(), options);
    const auto frames = frames_of(loader, 60);
    if (variant == 0) reference = frames;
    EXPECT_EQ(frames, reference) << "variant " << variant;
  }
}

TEST_F(StreamLoaderTest, BegunAtAnyStepItGoesOnAsIfItHadNotStopped) {
  const auto streamed = open_streamed(dataset::fixture("toy_split"), home());
  const StreamSource source = streamed.source();
  for (const std::int64_t workers : {0, 1, 3}) {
    StreamLoaderOptions options = stream_options(source, workers, 3, 2);
    StreamLoader whole(streamed.source(), options);
    const auto frames = frames_of(whole, 60);
    for (const std::int64_t step : {1, 7, 23, 41}) {
      options.plan.step = step;
      StreamLoader resumed(streamed.source(), options);
      const auto rest = frames_of(resumed, static_cast<int>(60 - step));
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(), frames.begin() + step * 3))
          << workers << " workers from step " << step;
    }
  }
}

TEST_F(StreamLoaderTest, AnyNumberOfProcessesSharesTheSameGlobalBatches) {
  const auto streamed = open_streamed(dataset::fixture("toy_split"), home());
  const StreamSource source = streamed.source();
  // Two ranks of two lanes, six samples each: twelve rows for 1, 2, 3, 4 or 6 processes.
  std::vector<std::vector<std::int64_t>> reference;
  for (const std::int64_t world : {2, 1, 3, 4, 6}) {
    std::vector<std::vector<std::int64_t>> batches(20);
    for (std::int64_t rank = 0; rank < world; ++rank) {
      StreamLoaderOptions options = stream_options(source, 2, 6, 2, std::uint64_t{1} << 33, 2);
      options.plan.world = world;
      options.plan.rank = rank;
      StreamLoader loader(streamed.source(), options);
      for (auto& batch : batches) {
        const auto rows = frames_of(loader, 1);
        EXPECT_EQ(static_cast<std::int64_t>(rows.size()), 12 / world);
        batch.insert(batch.end(), rows.begin(), rows.end());
      }
    }
    if (reference.empty()) reference = batches;
    EXPECT_EQ(batches, reference) << world << " processes";
  }
}

/// A payload that can be watched, held up and broken.
class WatchedPayload final : public Payload {
 public:
  explicit WatchedPayload(std::shared_ptr<Payload> inner) : inner_(std::move(inner)) {}

  std::string describe(std::string_view path) const override { return inner_->describe(path); }
  std::uint64_t size(const std::string& path) override { return inner_->size(path); }
  std::optional<std::string> fingerprint(const std::string& path) override {
    return inner_->fingerprint(path);
  }
  void read(std::span<const ByteRange> ranges) override {
    if (blocked) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return cancelled_; });
      fail("reading was stopped");
    }
    std::this_thread::sleep_for(delay);
    inner_->read(ranges);
    for (const ByteRange& range : ranges)
      if (on_read) on_read(range);
  }
  void cancel() override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    wake_.notify_all();
    inner_->cancel();
  }
  std::uint64_t bytes_read() const override { return inner_->bytes_read(); }

  std::atomic<bool> blocked{false};
  std::chrono::milliseconds delay{0};
  std::function<void(const ByteRange&)> on_read;

 private:
  std::shared_ptr<Payload> inner_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool cancelled_ = false;
};

TEST_F(StreamLoaderTest, PayloadNeverExceedsATinyBudgetAndTheOrderIsThePlanners) {
  const auto streamed = open_streamed(dataset::fixture("toy_split"), home());
  const StreamSource plain = streamed.source();
  std::uint64_t largest = 0;
  for (const std::int64_t episode : plain.episodes)
    largest = std::max(largest, plain.reader->reserved_bytes(episode));
  for (const std::uint64_t budget : {largest, largest * 3 / 2, largest * 3}) {
    const auto slow = std::make_shared<WatchedPayload>(
        std::make_shared<LocalPayload>(dataset::fixture("toy_split")));
    slow->delay = std::chrono::milliseconds(2);
    const StreamSource source = streamed.source(std::nullopt, slow);
    StreamLoaderOptions options = stream_options(source, 1, 5, 8, budget);
    options.samples_ahead = 60;
    options.batches_ahead = 12;
    options.decode_threads = 3;
    StreamLoader loader(source, options);

    const EpisodeList episodes = source.episode_list();
    CoveragePool planner(
        episodes.episodes, episodes.frames,
        [&](std::int64_t episode) { return source.reader->reserved_bytes(episode); },
        lane_options(options.plan.settings, 1));
    std::atomic<bool> done{false};
    struct Most {
      std::uint64_t reserved = 0, resident = 0;
      void note(const dataset::SourceStatistics& now) {
        reserved = std::max(reserved, now.reserved_bytes);
        resident = std::max(resident, now.resident_bytes);
      }
    } most, between;
    std::thread watcher([&] {
      while (!done) {
        most.note(loader.statistics());
        std::this_thread::yield();
      }
    });
    for (int i = 0; i < 60; ++i, between.note(loader.statistics()))
      for (const std::int64_t frame : frames_of(loader, 1)) {
        const Anchor anchor = planner.next();
        EXPECT_EQ(frame, streamed.metadata->episodes().from(anchor.episode) + anchor.frame);
      }
    done = true;
    watcher.join();
    for (const Most& seen : {most, between}) {
      EXPECT_LE(seen.reserved, budget);
      EXPECT_LE(seen.resident, seen.reserved);
    }
    EXPECT_GT(between.resident, 0u);
  }
}

TEST_F(StreamLoaderTest, AnEpisodeLargerThanTheBudgetFailsBeforeAnythingIsFetched) {
  const auto streamed = open_streamed(dataset::fixture("toy_h264"), home());
  const StreamSource source = streamed.source();
  const std::uint64_t before = source.payload->bytes_read();
  EXPECT_THAT(error_of([&] { StreamLoader(source, stream_options(source, 1, 4, 2, 2000)); }),
              AllOf(HasSubstr("exceeding the byte budget"), HasSubstr("2000"),
                    HasSubstr("--dataset.streaming_byte_budget_gb")));
  EXPECT_EQ(source.payload->bytes_read(), before);
}

TEST_F(StreamLoaderTest, DrainedEpisodesAreFreedAlthoughTheBudgetHasRoom) {
  make_dataset(root(), std::vector<std::int64_t>(20, 6), 25.0, "25");
  ASSERT_FALSE(HasFatalFailure());
  const auto streamed = open_streamed(root(), home());
  const StreamSource source = streamed.source();
  std::uint64_t all = 0;
  for (const std::int64_t episode : source.episodes) all += source.reader->reserved_bytes(episode);
  StreamLoaderOptions options = stream_options(source, 1, 4, 3);
  options.plan.prefetch_episodes = 1;
  StreamLoader loader(source, options);
  std::uint64_t most = 0;
  for (int i = 0; i < 60; ++i) {
    loader.next();
    most = std::max(most, loader.statistics().reserved_bytes);
  }
  EXPECT_LT(most, all / 2) << "4 of 20 episodes, and those whose samples are still decoded";
}

TEST_F(StreamLoaderTest, ASmallDatasetIsReadOnceWhateverTheNumberOfEpochs) {
  const auto streamed = open_streamed(dataset::fixture("toy_h264"), home());
  const StreamSource source = streamed.source();
  StreamLoader loader(source, stream_options(source, 1, 4));
  frames_of(loader, 8);
  const std::uint64_t first = loader.statistics().bytes_read;
  frames_of(loader, 100);
  EXPECT_EQ(loader.statistics().bytes_read, first);
}

TEST_F(StreamLoaderTest, StoppingEndsAWaitForDataAtOnce) {
  const auto streamed = open_streamed(dataset::fixture("toy_h264"), home());
  const auto payload = std::make_shared<WatchedPayload>(
      std::make_shared<LocalPayload>(dataset::fixture("toy_h264")));
  payload->blocked = true;
  const StreamSource source = streamed.source(std::nullopt, payload);
  StreamLoader loader(source, stream_options(source, 2, 4));
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    loader.stop();
  });
  EXPECT_THROW(loader.next(), dataset::LoaderStopped);
  stopper.join();
  EXPECT_THROW(loader.next(), dataset::LoaderStopped);
}

TEST_F(StreamLoaderTest, AFileThatIsCutDuringTheRunStopsItNamingEpisodeAndFile) {
  make_dataset(root(), std::vector<std::int64_t>(12, 10), 25.0, "25");
  ASSERT_FALSE(HasFatalFailure());
  const auto streamed = open_streamed(root(), home());
  const StreamSource source = streamed.source();
  StreamLoaderOptions options = stream_options(source, 1, 4, 1);
  options.plan.prefetch_episodes = 0;
  StreamLoader loader(source, options);
  loader.next();
  const fs::path video = root() / "videos/observation.images.top/chunk-000/file-000.mp4";
  fs::resize_file(video, 3000);
  const std::string message = error_of([&] { frames_of(loader, 100); });
  EXPECT_THAT(message, AllOf(HasSubstr("episode "), HasSubstr("file-000.mp4"),
                             HasSubstr("cut to 3000 bytes during the run")));
  EXPECT_EQ(error_of([&] { loader.next(); }), message);
}

TEST_F(StreamLoaderTest, BytesThatDoNotDecodeStopTheRunNamingEpisodeCameraAndFrame) {
  make_dataset(root(), {20, 20}, 25.0, "25");
  ASSERT_FALSE(HasFatalFailure());
  const auto streamed = open_streamed(root(), home());
  const auto payload = std::make_shared<WatchedPayload>(std::make_shared<LocalPayload>(root()));
  payload->on_read = [](const ByteRange& range) {
    if (range.path.ends_with(".mp4"))
      std::fill(range.out.begin(), range.out.end(), std::uint8_t{0xff});
  };
  const StreamSource source = streamed.source(std::nullopt, payload);
  StreamLoader loader(source, stream_options(source, 2, 4));
  EXPECT_THAT(error_of([&] { loader.next(); }),
              AllOf(HasSubstr("episode "), HasSubstr("camera observation.images.top"),
                    HasSubstr("frame ")));
}

/// An index that turns out to be damaged when it is used for a while.
class DamagedIndex final : public VideoIndex {
 public:
  DamagedIndex(std::shared_ptr<const VideoIndex> inner, int good_slices)
      : inner_(std::move(inner)), good_slices_(good_slices) {}

  std::size_t file(std::string_view path) const override { return inner_->file(path); }
  std::string_view path(std::size_t file) const override { return inner_->path(file); }
  std::uint64_t file_bytes(std::size_t file) const override { return inner_->file_bytes(file); }
  std::uint64_t reserved_bytes_bound(std::size_t file) const override {
    return inner_->reserved_bytes_bound(file);
  }
  EpisodeSlice slice(std::size_t file, double from_s, double to_s) const override {
    if (--good_slices_ < 0) fail("the index is damaged");
    return inner_->slice(file, from_s, to_s);
  }
  video::Mp4Index samples(std::size_t file, std::size_t first, std::size_t last) const override {
    return inner_->samples(file, first, last);
  }

 private:
  const std::shared_ptr<const VideoIndex> inner_;
  mutable std::atomic<int> good_slices_;
};

TEST_F(StreamLoaderTest, AnIndexThatFailsWhileThreadsPlanStopsTheRunWithItsError) {
  make_dataset(root(), std::vector<std::int64_t>(12, 6), 25.0, "25");
  ASSERT_FALSE(HasFatalFailure());
  auto streamed = open_streamed(root(), home());
  const auto index = streamed.index;
  for (int good_slices = 8; good_slices < 60; ++good_slices) {
    streamed.index = std::make_shared<DamagedIndex>(index, good_slices);
    StreamSource source = streamed.source();
    StreamLoaderOptions options = stream_options(source, 1, 4, 2);
    options.plan.prefetch_episodes = 1;
    StreamLoader loader(source, options);
    EXPECT_THAT(error_of([&] { frames_of(loader, 300); }), HasSubstr("the index is damaged"));
  }
}

TEST_F(StreamLoaderTest, RowsOfAnotherEpisodeStopTheRun) {
  dataset::DatasetCopy copy("toy_h264");
  copy.edit_data(dataset::set_integer("episode_index", 13, 0));
  const auto streamed = open_streamed(copy.root(), home());
  const StreamSource source = streamed.source();
  StreamLoader loader(source, stream_options(source, 1, 4));
  EXPECT_THAT(error_of([&] { frames_of(loader, 20); }),
              AllOf(HasSubstr("file-000.parquet"), HasSubstr("episode "), HasSubstr("rows")));
}

TEST_F(StreamLoaderTest, RandomTransformsFollowTheSampleAndNotTheThread) {
  const auto streamed = open_streamed(dataset::fixture("toy_h264"), home());
  const StreamSource source = streamed.source();
  const dataset::PixelTransform paint = [](at::Tensor& pixels, at::Generator& generator) {
    pixels.random_(0, 255, generator);
  };
  std::vector<at::Tensor> reference;
  for (const std::int64_t threads : {1, 4}) {
    StreamLoaderOptions options = stream_options(source, 2, 4);
    options.decode_threads = threads;
    options.transform = paint;
    StreamLoader loader(streamed.source(), options);
    std::vector<at::Tensor> pixels;
    for (int i = 0; i < 8; ++i) pixels.push_back(loader.next().at("observation.images.front"));
    if (reference.empty()) reference = pixels;
    for (std::size_t i = 0; i < pixels.size(); ++i) EXPECT_TRUE(at::equal(pixels[i], reference[i]));
  }
  EXPECT_FALSE(at::equal(reference[0], reference[1]));
}

}  // namespace
}  // namespace lerobot::streaming
