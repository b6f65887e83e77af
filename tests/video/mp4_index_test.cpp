#include "lerobot/video/mp4_index.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/video/test_videos.h"

namespace lerobot::video {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::HasSubstr;

constexpr char kH264[] = "-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3";

Mp4Index parse(const Bytes& bytes) {
  SpanReader reader(bytes, "memory.mp4");
  return Mp4Index::parse(reader);
}

std::vector<double> presentation_times(const Mp4Index& index) {
  std::vector<double> times(index.frame_count());
  for (std::size_t i = 0; i < times.size(); ++i)
    times[i] = index.presentation_time(index.sample_of_frame(i));
  return times;
}

class Mp4IndexTest : public VideoTest {
 protected:
  /// Presentation times of the video frames as ffprobe reports them, sorted.
  std::vector<double> probed_times(const fs::path& path) {
    const fs::path text = folder_ / "times";
    const std::string command = fmt::format(
        "ffprobe -v error -select_streams v:0 -show_entries frame=pts_time -of csv=p=0 {} > {}",
        path.string(), text.string());
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::ifstream stream(text);
    std::vector<double> times;
    for (std::string line; std::getline(stream, line);)
      if (!line.empty()) times.push_back(std::stod(line));
    return times;
  }

  void expect_times_of_ffprobe(const fs::path& path) {
    const std::vector<double> expected = probed_times(path);
    const std::vector<double> found = presentation_times(VideoFile::open(path)->index());
    ASSERT_EQ(found.size(), expected.size()) << path;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-6) << path << " frame " << i;
  }

  /// Overwrites entry `entry` of a version 0 edit list.
  static void put_edit(Bytes& bytes, int entry, std::uint32_t duration, std::uint32_t media_time,
                       std::uint32_t rate = 0x10000) {
    const std::size_t at = find_box(bytes, "elst") + 8 + 12 * static_cast<std::size_t>(entry);
    put32(bytes, at, duration);
    put32(bytes, at + 4, media_time);
    put32(bytes, at + 8, rate);
  }
};

TEST_F(Mp4IndexTest, PresentationTimesAreFfmpegs) {
  for (const char* options :
       {"", "-movflags negative_cts_offsets", "-output_ts_offset 0.5", "-movflags +faststart",
        "-movflags negative_cts_offsets -output_ts_offset 0.5", "-video_track_timescale 90000"})
    expect_times_of_ffprobe(make_video(std::string(kH264) + " " + options));
  expect_times_of_ffprobe(make_video(kH264, "96x64", "30000/1001"));
  expect_times_of_ffprobe(make_video(kH264, "96x64", "12.5"));
}

TEST_F(Mp4IndexTest, AnOffsetStartIsKept) {
  const auto file = VideoFile::open(make_video(std::string(kH264) + " -output_ts_offset 0.5"));
  EXPECT_DOUBLE_EQ(file->first_time_s(), 0.5);
  EXPECT_DOUBLE_EQ(file->last_time_s(), 0.5 + 49 * 0.04);
  EXPECT_DOUBLE_EQ(file->end_time_s(), 2.5);
  EXPECT_DOUBLE_EQ(file->duration_s(), 2.0);
  EXPECT_EQ(file->frame_count(), 50);
  EXPECT_THAT(file->average_frame_rate(), DoubleNear(25.0, 1e-9));
}

TEST_F(Mp4IndexTest, AnEditListThatCutsHidesTheFramesThatFfmpegHides) {
  const fs::path path = make_video(kH264);  // one edit: duration 2000, media time 1024, 512 a frame
  const Bytes original = read_bytes(path);
  const struct {
    std::uint32_t duration;
    std::uint32_t media_time;
  } edits[] = {{2000, 1024 + 512 * 5 + 100}, {1000, 1024}, {777, 1024 + 512 * 14}, {2000, 0}};
  for (const auto& edit : edits) {
    Bytes bytes = original;
    put_edit(bytes, 0, edit.duration, edit.media_time);
    const fs::path cut = folder_ / "cut.mp4";
    write_bytes(cut, bytes);
    expect_times_of_ffprobe(cut);
    EXPECT_LT(VideoFile::open(cut)->frame_count(), 50);
  }
}

TEST_F(Mp4IndexTest, ARepeatedSegmentIsRefusedByName) {
  Bytes bytes = read_bytes(make_video(std::string(kH264) + " -output_ts_offset 0.5"));
  put_edit(bytes, 0, 1000, 1024);
  put_edit(bytes, 1, 1000, 1024);
  EXPECT_THAT(error_of([&] { parse(bytes); }),
              AllOf(HasSubstr("memory.mp4"), HasSubstr("unsupported edit list"),
                    HasSubstr("several segments"), HasSubstr("edit 2 of 2"), HasSubstr("ffmpeg")));
}

TEST_F(Mp4IndexTest, AnEditAtDoubleSpeedOrADwellIsRefusedByName) {
  Bytes bytes = read_bytes(make_video(kH264));
  put_edit(bytes, 0, 1000, 1024, 0x20000);
  EXPECT_THAT(error_of([&] { parse(bytes); }),
              AllOf(HasSubstr("unsupported edit list"), HasSubstr("media rate 2")));
  put_edit(bytes, 0, 1000, 1024, 0);
  EXPECT_THAT(error_of([&] { parse(bytes); }), HasSubstr("dwell"));
}

TEST_F(Mp4IndexTest, AnEmptyEditInsideAndAnEditListOfNothingAreRefused) {
  Bytes bytes = read_bytes(make_video(std::string(kH264) + " -output_ts_offset 0.5"));
  put_edit(bytes, 0, 1000, 1024);
  put_edit(bytes, 1, 1000, 0xffffffff);
  EXPECT_THAT(error_of([&] { parse(bytes); }), HasSubstr("empty edit inside"));
  put_edit(bytes, 0, 1000, 0xffffffff);
  EXPECT_THAT(error_of([&] { parse(bytes); }), HasSubstr("nothing but empty edits"));
  put_edit(bytes, 0, 1000, 0xffffffff);
  put_edit(bytes, 1, 1000, 10'000'000);
  EXPECT_THAT(error_of([&] { parse(bytes); }), HasSubstr("hides every frame"));
}

TEST_F(Mp4IndexTest, FragmentedMp4IsRefusedWithTheRemedy) {
  const fs::path path =
      make_video(std::string(kH264) + " -movflags frag_keyframe+empty_moov+default_base_moof");
  EXPECT_THAT(error_of([&] { VideoFile::open(path); }),
              AllOf(HasSubstr(path.string()), HasSubstr("fragmented"),
                    HasSubstr("-c copy -movflags +faststart")));
}

TEST_F(Mp4IndexTest, AnotherCodecIsRefusedByName) {
  const fs::path path = make_video("-c:v mpeg4");
  EXPECT_THAT(error_of([&] { VideoFile::open(path); }),
              AllOf(HasSubstr("'mp4v' is not supported"), HasSubstr("re-encode")));
}

TEST_F(Mp4IndexTest, ARotatedPictureIsRefusedByName) {
  Bytes bytes = read_bytes(make_video(kH264));
  const std::size_t matrix = find_box(bytes, "tkhd") + 40;
  put32(bytes, matrix, 0);
  put32(bytes, matrix + 4, 0x10000);
  EXPECT_THAT(error_of([&] { parse(bytes); }), HasSubstr("rotates or mirrors"));
}

TEST_F(Mp4IndexTest, AudioTracksAreIgnoredWhereverTheyStand) {
  const fs::path path = folder_ / "audio.mp4";
  run_ffmpeg(
      fmt::format("-f lavfi -i sine=duration=1 -f lavfi -i testsrc2=size=96x64:duration=1 "
                  "-map 0 -map 1 -c:a aac {} {}",
                  kH264, path.string()));
  const auto file = VideoFile::open(path);
  EXPECT_EQ(file->index().track_id, 2U);
  EXPECT_EQ(file->frame_count(), 25);
  EXPECT_EQ(file->width(), 96);
}

TEST_F(Mp4IndexTest, OfSeveralVideoTracksTheFirstEnabledOneIsRead) {
  const fs::path path = folder_ / "two.mp4";
  run_ffmpeg(
      fmt::format("-f lavfi -i testsrc2=size=96x64:duration=1 -f lavfi -i "
                  "testsrc2=size=64x48:duration=1 -map 0 -map 1 {} {}",
                  kH264, path.string()));
  Bytes bytes = read_bytes(path);
  put32(bytes, find_box(bytes, "tkhd", 0), 3);
  put32(bytes, find_box(bytes, "tkhd", 1), 3);
  EXPECT_EQ(parse(bytes).width, 96);
  put32(bytes, find_box(bytes, "tkhd", 0), 2);
  EXPECT_EQ(parse(bytes).width, 64);
  put32(bytes, find_box(bytes, "tkhd", 1), 2);
  EXPECT_EQ(parse(bytes).width, 96);
}

TEST_F(Mp4IndexTest, NoVideoTrackIsSaid) {
  const fs::path path = folder_ / "sound.mp4";
  run_ffmpeg("-f lavfi -i sine=duration=1 -c:a aac " + path.string());
  EXPECT_THAT(error_of([&] { VideoFile::open(path); }), HasSubstr("no video track"));
}

TEST_F(Mp4IndexTest, MoovMayStandBeforeOrAfterMdat) {
  EXPECT_FALSE(VideoFile::open(make_video(kH264))->index().moov_before_mdat);
  EXPECT_TRUE(VideoFile::open(make_video(std::string(kH264) + " -movflags +faststart"))
                  ->index()
                  .moov_before_mdat);
}

// The same movie with other boxes that say the same: 64-bit offsets and box sizes, compact sizes,
// an edit list of version 1.
TEST_F(Mp4IndexTest, WideAndCompactTablesGiveTheSameIndex) {
  const Bytes original = read_bytes(make_video(kH264, "96x64", "25", 0.4));
  const Mp4Index expected = parse(original);
  const SampleTable& samples = expected.samples;
  const auto n = static_cast<std::uint32_t>(samples.size());

  Bytes media;
  Bytes co64 = words({0, n});
  Bytes stz2 = words({0, 16, n});
  Bytes ctts = words({0x1000000, n});
  for (std::size_t i = 0; i < n; ++i) {
    const auto begin = original.begin() + static_cast<std::ptrdiff_t>(samples.offset(i));
    co64 = joined({co64, words({0, static_cast<std::uint32_t>(24 + media.size())})});
    media.insert(media.end(), begin, begin + samples.bytes(i));
    stz2.push_back(static_cast<std::uint8_t>(samples.bytes(i) >> 8));
    stz2.push_back(static_cast<std::uint8_t>(samples.bytes(i)));
    ctts = joined({ctts, words({1, static_cast<std::uint32_t>(samples.composition_offset(i))})});
  }
  Bytes stss = words({0, static_cast<std::uint32_t>(samples.sync_samples.size())});
  for (const std::uint32_t sync : samples.sync_samples) stss = joined({stss, words({sync + 1})});

  const auto copy = [&](const char* type) {
    const std::size_t at = find_box(original, type);
    return make_box(type, Bytes(original.begin() + static_cast<std::ptrdiff_t>(at),
                                original.begin() +
                                    static_cast<std::ptrdiff_t>(at + get32(original, at - 8) - 8)));
  };
  const Bytes tables = make_box(
      "stbl", joined({copy("stsd"), make_box("stts", words({0, 1, n, 512})), make_box("ctts", ctts),
                      make_box("stss", stss), make_box("stsc", words({0, 1, 1, 1, 1})),
                      make_box("stz2", stz2), make_box("co64", co64)}));
  const Bytes edit =
      make_box("edts", make_box("elst", words({0x1000000, 1, 0, 400, 0, 1024, 0x10000})));
  const Bytes movie = make_box(
      "moov",
      joined({copy("mvhd"),
              make_box("trak", joined({copy("tkhd"), edit,
                                       make_box("mdia", joined({copy("mdhd"), copy("hdlr"),
                                                                make_box("minf", tables)}))}))}));
  const Bytes file = joined({make_box("free", {}), make_box("mdat", media, /*large=*/true), movie});

  const Mp4Index found = parse(file);
  EXPECT_EQ(found.samples.sizes, samples.sizes);
  EXPECT_EQ(found.samples.decode_times, samples.decode_times);
  EXPECT_EQ(found.samples.composition_offsets, samples.composition_offsets);
  EXPECT_EQ(found.samples.sync_samples, samples.sync_samples);
  EXPECT_EQ(found.decoder_configuration, expected.decoder_configuration);
  EXPECT_EQ(presentation_times(found), presentation_times(expected));
  EXPECT_TRUE(found.file_type_box.empty());
  EXPECT_EQ(found.codec_tag, "avc1");
  write_bytes(folder_ / "built.mp4", file);
  expect_times_of_ffprobe(folder_ / "built.mp4");
}

TEST_F(Mp4IndexTest, WithoutASyncTableEverySampleIsOne) {
  Bytes bytes = read_bytes(make_video(kH264));
  EXPECT_FALSE(parse(bytes).samples.is_sync(1));
  const std::size_t at = find_box(bytes, "stss");
  bytes[at - 4] = 'f';
  const SampleTable samples = parse(bytes).samples;
  EXPECT_TRUE(samples.is_sync(1));
  EXPECT_EQ(samples.sync_at_or_before(7), 7U);
}

TEST_F(Mp4IndexTest, TheReorderDepthIsWhatTheEncoderUsed) {
  const auto depth = [&](const std::string& options) {
    return parse(read_bytes(make_video("-c:v libx264 -pix_fmt yuv420p " + options))).reorder_depth;
  };
  EXPECT_EQ(depth("-bf 0"), 0);
  EXPECT_EQ(depth("-bf 3 -x264-params b-adapt=0:b-pyramid=none"), 1);
  EXPECT_EQ(depth("-bf 3 -x264-params b-adapt=0:b-pyramid=normal"), 2);
}

TEST_F(Mp4IndexTest, TheNearestFrameIsFound) {
  const Mp4Index index = parse(read_bytes(make_video(kH264)));
  EXPECT_EQ(index.nearest_frame(-5.0), 0U);
  EXPECT_EQ(index.nearest_frame(0.019), 0U);
  EXPECT_EQ(index.nearest_frame(0.021), 1U);
  EXPECT_EQ(index.nearest_frame(0.04), 1U);
  EXPECT_EQ(index.nearest_frame(100.0), 49U);
}

// ---- What tables claim
// -----------------------------------------------------------------------------

TEST_F(Mp4IndexTest, TablesThatDisagreeAreRefusedWithBothNumbers) {
  const Bytes original = read_bytes(make_video(kH264));
  const auto with = [&](const char* box, std::size_t offset, std::uint32_t value) {
    Bytes bytes = original;
    put32(bytes, find_box(bytes, box) + offset, value);
    return error_of([&] { parse(bytes); });
  };
  EXPECT_THAT(with("stts", 8, 49), AllOf(HasSubstr("moov/trak/mdia/minf/stbl/stts"),
                                         HasSubstr("covers 49 samples"), HasSubstr("has 50")));
  EXPECT_THAT(with("ctts", 8, 9), AllOf(HasSubstr("/ctts"), HasSubstr("has 50")));
  EXPECT_THAT(with("stsz", 8, 0xffffffff), HasSubstr("claims 4294967295 entries"));
  EXPECT_THAT(with("stsz", 4, 100000), HasSubstr("claims 50 samples of 100000 bytes"));
  EXPECT_THAT(with("stsz", 12, 0), HasSubstr("sample 1 has 0 bytes"));
  EXPECT_THAT(with("stsz", 8, 0), HasSubstr("no samples"));
  EXPECT_THAT(with("stco", 4, 0x80000000), HasSubstr("claims 2147483648 entries"));
  EXPECT_THAT(with("stco", 8, 0x7fffffff), HasSubstr("the file is cut"));
  EXPECT_THAT(with("stsc", 8, 2), HasSubstr("run 1 covers chunks 2"));
  EXPECT_THAT(with("stsc", 12, 7), HasSubstr("hold 7 samples, the size table has 50"));
  EXPECT_THAT(with("stsc", 16, 9), HasSubstr("description 9"));
  EXPECT_THAT(with("stss", 8, 0), HasSubstr("names sample 0"));
  EXPECT_THAT(with("stss", 4, 99), HasSubstr("claims 99 entries"));
  EXPECT_THAT(with("mdhd", 12, 0), HasSubstr("time scale is 0"));
  EXPECT_THAT(with("elst", 4, 0x10000000), HasSubstr("claims 268435456 entries"));
  EXPECT_THAT(with("stts", 12, 0xffffffff), HasSubstr("no error"));  // long frames, but possible
}

// ---- Files that are something else
// -----------------------------------------------------------------

TEST_F(Mp4IndexTest, FilesThatAreNoMp4AreNamed) {
  const auto with = [&](const std::string& text) {
    const fs::path path = folder_ / "odd.mp4";
    std::ofstream(path) << text;
    return error_of([&] { VideoFile::open(path); });
  };
  EXPECT_THAT(with(""), AllOf(HasSubstr("odd.mp4"), HasSubstr("is empty")));
  EXPECT_THAT(with("not a video at all"), HasSubstr("is not an MP4 file"));
  EXPECT_THAT(with("abc"), HasSubstr("is not an MP4 file"));
  EXPECT_THAT(with("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
              AllOf(HasSubstr("Git LFS pointer"), HasSubstr("git lfs pull")));
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_ / "absent.mp4"); }),
              AllOf(HasSubstr("absent.mp4"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_); }), HasSubstr(folder_.string()));
}

TEST_F(Mp4IndexTest, ACutFileIsSaidToBeCut) {
  for (const char* options : {"", " -movflags +faststart"}) {
    const Bytes original = read_bytes(make_video(std::string(kH264) + options));
    const fs::path path = folder_ / "cut.mp4";
    write_bytes(path, Bytes(original.begin(), original.begin() + static_cast<std::ptrdiff_t>(
                                                                     original.size() * 2 / 3)));
    EXPECT_THAT(error_of([&] { VideoFile::open(path); }),
                AllOf(HasSubstr("cut.mp4"), HasSubstr("the file is cut"),
                      HasSubstr("copy or download it again")));
  }
}

TEST_F(Mp4IndexTest, ARecordingThatWasNotFinishedIsNamed) {
  const Bytes bytes =
      joined({make_box("ftyp", words({0x69736f6d, 512})), make_box("mdat", {1, 2})});
  EXPECT_THAT(error_of([&] { parse(bytes); }), HasSubstr("has no 'moov' box"));
}

}  // namespace
}  // namespace lerobot::video
