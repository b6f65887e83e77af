// The mapped index: equal to the sidecar, right for decoding, repaired when damaged.
#include "lerobot/streaming/mapped_index.h"

#include <random>

#include "lerobot/video/decoder.h"
#include "tests/streaming/sidecar_fixture.h"
#include "tests/video/test_videos.h"

namespace lerobot::streaming {
namespace {

using ::testing::HasSubstr;
using video::Bytes;

class MappedIndexTest : public SidecarTest {
 protected:
  /// A sidecar of one video made by ffmpeg, and the video itself.
  struct Made {
    fs::path video, sidecar;
    std::shared_ptr<const video::VideoFile> file;
    std::shared_ptr<const MappedIndex> index;
  };
  Made make(const std::string& options, double seconds = 3.0,
            const std::function<void(Bytes&)>& change = {}) {
    const fs::path root = folder_ / fmt::format("made{}", ++made_);
    fs::create_directories(root);
    Made made{root / "a.mp4", root / "a.npz", nullptr, nullptr};
    const std::string command = fmt::format(
        "ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=size=96x64:rate=25:duration={} {} {}",
        seconds, options, made.video.string());
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    if (change) {
      Bytes bytes = video::read_bytes(made.video);
      change(bytes);
      video::write_bytes(made.video, bytes);
    }
    LocalPayload payload(root);
    const SidecarIdentity identity = expected_identity("a/b", "v3.0", root, {"a.mp4"}, payload, 1);
    build_sidecar(identity, payload, made.sidecar);
    made.file = video::VideoFile::open(made.video);
    made.index = MappedIndex::open(made.sidecar, index_options());
    return made;
  }

  /// Slices of the whole and of parts present the same samples at the same times as the file.
  static void expect_presentation_of_the_file(const Made& made) {
    const video::Mp4Index& whole = made.file->index();
    const std::size_t count = whole.samples.size();
    std::mt19937 random(7);
    for (int round = 0; round < 30; ++round) {
      std::size_t first = random() % count, last = random() % count;
      if (first > last) std::swap(first, last);
      if (round == 0) first = 0, last = count - 1;
      std::vector<std::size_t> presented;
      for (std::size_t f = 0; f < whole.frame_count(); ++f) {
        const std::size_t sample = whole.sample_of_frame(f);
        if (sample >= first && sample <= last) presented.push_back(sample);
      }
      if (presented.empty()) continue;
      const video::Mp4Index part = made.index->samples(0, first, last);
      ASSERT_EQ(part.frame_count(), presented.size());
      for (std::size_t f = 0; f < presented.size(); ++f) {
        ASSERT_EQ(part.sample_of_frame(f) + first, presented[f]);
        ASSERT_EQ(part.presentation_time(part.sample_of_frame(f)),
                  whole.presentation_time(presented[f]));
      }
      ASSERT_EQ(part.samples.size(), last - first + 1);
      for (std::size_t i = 0; i < part.samples.size(); ++i) {
        ASSERT_EQ(part.samples.offset(i), whole.samples.offset(first + i));
        ASSERT_EQ(part.samples.bytes(i), whole.samples.bytes(first + i));
        ASSERT_EQ(part.samples.is_sync(i), whole.samples.is_sync(first + i));
        ASSERT_EQ(part.samples.decode_time(i), whole.samples.decode_time(first + i));
      }
      ASSERT_EQ(part.reorder_depth, whole.reorder_depth);
      ASSERT_EQ(part.decoder_configuration, whole.decoder_configuration);
      ASSERT_EQ(part.width, whole.width);
    }
  }

  fs::path index_path() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "home/streaming-indexes"))
      if (entry.path().extension() == ".bin") return entry.path();
    return {};
  }

  int made_ = 0;
};

TEST_F(MappedIndexTest, ColumnsAreLeRobotsArrays) {
  for (const char* name : {"toy_h264.npz", "stored.npz", "other_types.npz"}) {
    const fs::path path = test_data("sidecars") / name;
    const SidecarFile sidecar(path);
    const auto index = MappedIndex::open(path, index_options());
    ASSERT_EQ(index->size(), 2U);
    const IndexFile file(index->index_path());
    for (std::size_t i = 0; i < 2; ++i) {
      const SidecarArrays arrays = sidecar.arrays(i);
      const TrackSamples samples = file.samples(i);
      EXPECT_EQ(index->path(i), sidecar.manifest().videos[i].path);
      EXPECT_EQ(index->file(index->path(i)), i);
      EXPECT_EQ(index->file_bytes(i), sidecar.manifest().videos[i].size);
      ASSERT_EQ(samples.size(), arrays.pts.size());
      ASSERT_EQ(samples.sync_samples.size(), arrays.sync_samples.size());
      for (std::size_t s = 0; s < samples.size(); ++s) {
        EXPECT_EQ(samples.pts[s], arrays.pts[s]);
        EXPECT_EQ(samples.durations[s], arrays.durations[s]);
        EXPECT_EQ(samples.composition_offsets[s], arrays.composition_offsets[s]);
        EXPECT_EQ(samples.sizes[s], arrays.sizes[s]);
        EXPECT_EQ(samples.offsets[s], arrays.offsets[s]);
      }
      for (std::size_t s = 0; s < arrays.sync_samples.size(); ++s)
        EXPECT_EQ(samples.sync_samples[s], arrays.sync_samples[s]);
      EXPECT_TRUE(samples.durations.constant());
      EXPECT_TRUE(samples.composition_offsets.constant());
    }
  }
  EXPECT_THAT(error_of([&] { MappedIndex::open(toy_sidecar(), index_options())->file("no.mp4"); }),
              HasSubstr("no video no.mp4"));
}

TEST_F(MappedIndexTest, PresentationIsThatOfTheFileWhateverItsEdits) {
  for (const char* options :
       {"-c:v libx264 -g 12 -bf 3", "-c:v libx264 -g 12 -bf 3 -x264opts open_gop=1",
        "-c:v libx264 -g 4 -bf 0", "-c:v libx264 -g 12 -bf 3 -output_ts_offset 0.5",
        "-c:v libx264 -g 12 -bf 3 -movflags negative_cts_offsets",
        "-c:v libx264 -g 1 -movflags +faststart", "-c:v libx264 -bf 2 -video_track_timescale 600",
        "-c:v libsvtav1 -g 4 -preset 12"})
    expect_presentation_of_the_file(make(std::string(options) + " -pix_fmt yuv420p"));
}

TEST_F(MappedIndexTest, FramesThatAnEditHidesStayHidden) {
  const auto edit = [](std::uint32_t duration, std::uint32_t media_time) {
    return [=](Bytes& bytes) {
      const std::size_t at = video::find_box(bytes, "elst") + 8;
      video::put32(bytes, at, duration);
      video::put32(bytes, at + 4, media_time);
    };
  };
  const std::string options = "-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3";
  expect_presentation_of_the_file(make(options, 3.0, edit(2000, 1024 + 512 * 5 + 100)));
  expect_presentation_of_the_file(make(options, 3.0, edit(1000, 1024 + 512 * 14)));
  const Made made = make(options, 3.0, edit(3000, 0));
  expect_presentation_of_the_file(made);
  EXPECT_TRUE(SidecarFile(made.sidecar).arrays(0).presentation);
}

TEST_F(MappedIndexTest, ASliceDecodesToThePixelsOfTheFile) {
  for (const char* options : {"-c:v libx264 -g 12 -bf 3 -x264opts open_gop=1",
                              "-c:v libx264 -g 12 -bf 3 -output_ts_offset 0.5"}) {
    const Made made = make(std::string(options) + " -pix_fmt yuv420p", 4.0);
    const Bytes bytes = video::read_bytes(made.video);
    const double from = 1.7, to = 2.9;
    const EpisodeSlice slice = made.index->slice(0, from, to);

    /// Only the slice's bytes, as a fetch would bring them.
    class Fetched final : public video::PacketSource {
     public:
      Fetched(video::Mp4Index index, std::uint64_t offset, Bytes bytes)
          : index_(std::move(index)), offset_(offset), bytes_(std::move(bytes)) {}
      std::string_view name() const override { return "slice"; }
      const video::Mp4Index& index() const override { return index_; }
      std::span<const std::uint8_t> packet(std::size_t sample) const override {
        return std::span(bytes_).subspan(index_.samples.offset(sample) - offset_,
                                         index_.samples.bytes(sample));
      }

     private:
      video::Mp4Index index_;
      std::uint64_t offset_;
      Bytes bytes_;
    };
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(slice.byte_offset);
    const auto fetched = std::make_shared<Fetched>(
        made.index->samples(0, slice.first_sample, slice.last_sample), slice.byte_offset,
        Bytes(begin, begin + static_cast<std::ptrdiff_t>(slice.byte_length)));
    video::Decoder from_slice(fetched, video::PixelLayout::kRgbPlanes);
    video::Decoder from_file(made.file, video::PixelLayout::kRgbPlanes);
    const video::Mp4Index& whole = made.file->index();
    for (std::size_t f = 0; f < whole.frame_count(); ++f) {
      const double frame = whole.presentation_time(whole.sample_of_frame(f));
      if (frame < from || frame > to) continue;
      Bytes a(3 * 96 * 64), b(3 * 96 * 64);
      const video::FrameRequest request_a{frame, a.data()}, request_b{frame, b.data()};
      from_slice.decode({&request_a, 1}, 1e-4);
      from_file.decode({&request_b, 1}, 1e-4);
      ASSERT_EQ(a, b) << frame;
    }
  }
}

TEST_F(MappedIndexTest, ItIsConvertedOnceAndThenReused) {
  const auto first = MappedIndex::open(toy_sidecar(), index_options());
  const auto written = fs::last_write_time(first->index_path());
  const auto second = MappedIndex::open(toy_sidecar(), index_options());
  EXPECT_EQ(first->index_path(), second->index_path());
  EXPECT_EQ(fs::last_write_time(second->index_path()), written);
  EXPECT_EQ(files_below(folder_ / "home").size(), 1U);
}

TEST_F(MappedIndexTest, ANewSidecarIsANewGenerationAndReadersKeepTheirs) {
  const fs::path sidecar = folder_ / "a.npz";
  fs::copy_file(toy_sidecar(), sidecar);
  auto old_reader = MappedIndex::open(sidecar, index_options());
  fs::copy_file(test_data("sidecars/stored.npz"), folder_ / "b.npz");
  fs::rename(folder_ / "b.npz", sidecar);
  auto new_reader = MappedIndex::open(sidecar, index_options());
  EXPECT_NE(old_reader->index_path(), new_reader->index_path());
  EXPECT_TRUE(fs::exists(old_reader->index_path()));  // in use
  EXPECT_EQ(old_reader->slice(0, 0.0, 1.0).last_sample, new_reader->slice(0, 0.0, 1.0).last_sample);
  // The next generation removes what nobody holds any more.
  const fs::path old_path = old_reader->index_path(), new_path = new_reader->index_path();
  old_reader.reset();
  fs::copy_file(test_data("sidecars/other_types.npz"), folder_ / "b.npz");
  fs::rename(folder_ / "b.npz", sidecar);
  const auto newest = MappedIndex::open(sidecar, index_options());
  EXPECT_FALSE(fs::exists(old_path));
  EXPECT_TRUE(fs::exists(new_path));
}

TEST_F(MappedIndexTest, EveryFlippedByteIsFoundOrHarmless) {
  const auto good = MappedIndex::open(toy_sidecar(), index_options());
  const Bytes original = video::read_bytes(good->index_path());
  const fs::path path = folder_ / "broken.bin";
  for (std::size_t at = 0; at < original.size(); ++at) {
    Bytes broken = original;
    broken[at] ^= static_cast<std::uint8_t>(1 + at % 255);
    video::write_bytes(path, broken);
    try {
      const IndexFile file(path);
      for (std::size_t video = 0; video < file.size(); ++video) {
        const TrackSamples samples = file.samples(video);
        const EpisodeSlice slice = slice_of(samples, 0.5, 1.5, file.video_path(video));
        EXPECT_EQ(slice.reserved_bytes, good->slice(video, 0.5, 1.5).reserved_bytes) << at;
      }
    } catch (const IndexDamaged&) {
    }
  }
  for (std::size_t size = 0; size < original.size(); size += 7) {
    video::write_bytes(path, Bytes(original.begin(), original.begin() + static_cast<int>(size)));
    EXPECT_THROW(IndexFile{path}, IndexDamaged) << size;
  }
}

TEST_F(MappedIndexTest, ADamagedIndexIsConvertedAgainAtOpenAndInUse) {
  EpisodeSlice expected;
  {
    const auto index = MappedIndex::open(toy_sidecar(), index_options());
    expected = index->slice(1, 0.0, 2.0);
  }
  const Bytes original = video::read_bytes(index_path());
  Bytes cut(original.begin(), original.end() - 1);
  video::write_bytes(index_path(), cut);
  EXPECT_EQ(MappedIndex::open(toy_sidecar(), index_options())->slice(1, 0.0, 2.0).reserved_bytes,
            expected.reserved_bytes);
  EXPECT_EQ(video::read_bytes(index_path()).size(), original.size());

  Bytes flipped = original;
  flipped[5] ^= 0xff;  // among the first video's times
  video::write_bytes(index_path(), flipped);
  const auto index = MappedIndex::open(toy_sidecar(), index_options());
  EXPECT_EQ(index->slice(1, 0.0, 2.0).reserved_bytes, expected.reserved_bytes);
  EXPECT_NO_THROW(index->slice(0, 0.0, 2.0));
}

TEST_F(MappedIndexTest, DamageThatCannotBeRepairedNamesTheFile) {
  const fs::path sidecar = folder_ / "a.npz";
  fs::copy_file(toy_sidecar(), sidecar);
  { MappedIndex::open(sidecar, index_options()); }
  Bytes flipped = video::read_bytes(index_path());
  flipped[5] ^= 0xff;
  video::write_bytes(index_path(), flipped);
  const auto index = MappedIndex::open(sidecar, index_options());
  fs::remove(sidecar);
  EXPECT_THAT(error_of([&] { index->slice(0, 0.0, 1.0); }), HasSubstr("a.npz"));
}

TEST_F(MappedIndexTest, AnUnknownCodecIsIndexedAndRefusedWhenDecoded) {
  const fs::path root = folder_ / "mpeg4";
  fs::create_directories(root);
  ASSERT_EQ(std::system(fmt::format("ffmpeg -nostdin -v error -y -f lavfi -i "
                                    "testsrc2=size=96x64:rate=25:duration=1 -c:v mpeg4 {}",
                                    (root / "a.mp4").string())
                            .c_str()),
            0);
  LocalPayload payload(root);
  build_sidecar(expected_identity("a/b", "v3.0", root, {"a.mp4"}, payload, 1), payload,
                root / "a.npz");
  EXPECT_EQ(SidecarFile(root / "a.npz").manifest().videos[0].codec, "mp4v");
  const auto index = MappedIndex::open(root / "a.npz", index_options());
  EXPECT_GT(index->slice(0, 0.0, 1.0).byte_length, 0U);
  EXPECT_THAT(error_of([&] { index->samples(0, 0, 1); }),
              HasSubstr("a.mp4: video codec 'mp4v' is not supported"));
}

}  // namespace
}  // namespace lerobot::streaming
