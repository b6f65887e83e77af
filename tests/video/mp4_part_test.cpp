// Parts of a video as indexes of their own, and the layout of files that are only indexed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/video/test_videos.h"

namespace lerobot::video {
namespace {

using ::testing::HasSubstr;

class Mp4PartTest : public VideoTest {
 protected:
  static Mp4Index parse(const Bytes& bytes, Mp4Use use) {
    SpanReader reader(bytes, "memory.mp4");
    return Mp4Index::parse(reader, use);
  }
  /// All samples of `index` as a part.
  static Mp4Part part_of(const Mp4Index& index) {
    Mp4Part part;
    part.name = "part.mp4";
    part.time_scale = index.time_scale;
    part.sample_description = index.sample_description;
    part.samples = index.samples;
    part.reorder_depth = index.reorder_depth;
    part.presentation = index.presentation();
    return part;
  }
};

TEST_F(Mp4PartTest, APartOfEverythingIsTheVideo) {
  const auto file = VideoFile::open(
      make_video("-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3 -output_ts_offset 0.5"));
  const Mp4Index& whole = file->index();
  const Mp4Index part = Mp4Index::of_part(part_of(whole));
  ASSERT_EQ(part.frame_count(), whole.frame_count());
  for (std::size_t f = 0; f < whole.frame_count(); ++f) {
    ASSERT_EQ(part.sample_of_frame(f), whole.sample_of_frame(f));
    ASSERT_EQ(part.presentation_time(part.sample_of_frame(f)),
              whole.presentation_time(whole.sample_of_frame(f)));
  }
  EXPECT_EQ(part.codec, whole.codec);
  EXPECT_EQ(part.width, whole.width);
  EXPECT_EQ(part.height, whole.height);
  EXPECT_EQ(part.decoder_configuration, whole.decoder_configuration);
  EXPECT_EQ(part.reorder_depth, whole.reorder_depth);
}

TEST_F(Mp4PartTest, AShiftThatIsNoWholeTickIsKept) {
  const auto file = VideoFile::open(make_video("-c:v libx264 -pix_fmt yuv420p -g 12 -bf 0"));
  Mp4Part part = part_of(file->index());
  part.presentation.shift_s = 1e-6;
  const Mp4Index index = Mp4Index::of_part(std::move(part));
  EXPECT_DOUBLE_EQ(index.presentation_time(3), file->index().presentation_time(3) + 1e-6);
}

TEST_F(Mp4PartTest, APartThatIsNoneIsRefused) {
  const auto file = VideoFile::open(make_video("-c:v libx264 -pix_fmt yuv420p -g 12 -bf 0"));
  Mp4Part empty = part_of(file->index());
  empty.samples = {};
  EXPECT_THAT(error_of([&] { Mp4Index::of_part(empty); }), HasSubstr("part.mp4: the index has 0"));
  Mp4Part damaged = part_of(file->index());
  damaged.sample_description.resize(40);
  EXPECT_THAT(error_of([&] { Mp4Index::of_part(damaged); }), HasSubstr("part.mp4: MP4 box stsd"));
  Mp4Part hidden = part_of(file->index());
  hidden.presentation.end = hidden.presentation.begin;
  EXPECT_THAT(error_of([&] { Mp4Index::of_part(hidden); }), HasSubstr("hides every frame"));
}

TEST_F(Mp4PartTest, TheLayoutSaysWhereTheBoxesAre) {
  for (const char* options : {"", "-movflags +faststart"}) {
    const Bytes bytes = read_bytes(make_video(std::string("-c:v libx264 ") + options));
    const Mp4Index index = parse(bytes, Mp4Use::kIndex);
    EXPECT_EQ(index.layout.movie_offset, find_box(bytes, "moov") - 8);
    EXPECT_EQ(index.layout.media_data_offset, find_box(bytes, "mdat") - 8);
    EXPECT_EQ(index.layout.media_data_payload_offset, find_box(bytes, "mdat"));
    EXPECT_EQ(index.layout.media_data_payload_bytes,
              get32(bytes, find_box(bytes, "mdat") - 8) - 8U);
    EXPECT_EQ(index.moov_before_mdat, *options != '\0');
    EXPECT_EQ(index.track_width, 96U);
    EXPECT_EQ(index.track_height, 64U);
  }
}

TEST_F(Mp4PartTest, ACodecThatCannotBeDecodedCanBeIndexed) {
  const Bytes bytes = read_bytes(make_video("-c:v mpeg4"));
  EXPECT_EQ(parse(bytes, Mp4Use::kIndex).codec_tag, "mp4v");
  EXPECT_THAT(error_of([&] { parse(bytes, Mp4Use::kDecode); }),
              HasSubstr("'mp4v' is not supported"));
}

TEST_F(Mp4PartTest, AFileWithoutMediaDataIsNotIndexed) {
  Bytes bytes = read_bytes(make_video("-c:v libx264"));
  std::copy_n("free", 4, bytes.begin() + static_cast<std::ptrdiff_t>(find_box(bytes, "mdat")) - 4);
  EXPECT_THAT(error_of([&] { parse(bytes, Mp4Use::kIndex); }), HasSubstr("has no 'mdat' box"));
}

}  // namespace
}  // namespace lerobot::video
