// The sample table of an MP4's video track: where every coded frame lies and when it is presented.
//
// Format: ISO/IEC 14496-12 (boxes), -15 (avc1, hvc1), and the AV1 ISOBMFF binding (av01). Whatever
// a file claims is checked against the file and against its other boxes before memory is allocated
// for it; an Error names the file, the box, both numbers and what to do.
//
// Times. A sample has a decode time and a composition time, in ticks of the media time scale. Its
// presentation time is what FFmpeg (and so torchcodec and PyAV) reports for the frame: without an
// edit list the composition time itself; with one, samples composed outside the edit are decoded
// but never presented, the earliest presented one begins at the sum of the leading empty edits, and
// the others keep their distance to it.
//
// Immutable after parsing, hence thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lerobot::video {

/// Random access to a file's bytes, local or remote.
class ByteReader {
 public:
  virtual ~ByteReader() = default;
  /// What messages call the file.
  virtual std::string_view name() const = 0;
  /// The file's size in bytes.
  virtual std::uint64_t size() const = 0;
  /// Bytes [offset, offset + length), which lie inside the file; the view is valid until the next
  /// call. Throws Error when they can't be had.
  virtual std::span<const std::uint8_t> read(std::uint64_t offset, std::uint64_t length) = 0;
};

/// A ByteReader over bytes in memory.
class SpanReader final : public ByteReader {
 public:
  SpanReader(std::span<const std::uint8_t> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }
  std::span<const std::uint8_t> read(std::uint64_t offset, std::uint64_t length) override {
    return bytes_.subspan(offset, length);
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::string name_;
};

enum class Codec { kH264, kHevc, kAv1 };

/// FFmpeg's name, as info.json has it under video.codec: "h264", "hevc", "av1".
std::string_view codec_name(Codec codec);

/// Every sample (coded frame) of a track in decode order.
class SampleTable {
 public:
  std::size_t size() const { return sizes.size(); }
  std::uint64_t offset(std::size_t sample) const { return offsets[sample]; }
  std::uint32_t bytes(std::size_t sample) const { return sizes[sample]; }
  /// Ticks of the media time scale.
  std::int64_t decode_time(std::size_t sample) const { return decode_times[sample]; }
  std::int64_t duration(std::size_t sample) const {
    return decode_times[sample + 1] - decode_times[sample];
  }
  std::int32_t composition_offset(std::size_t sample) const {
    return composition_offsets.empty() ? 0 : composition_offsets[sample];
  }
  std::int64_t composition_time(std::size_t sample) const {
    return decode_times[sample] + composition_offset(sample);
  }
  bool is_sync(std::size_t sample) const;
  /// The last sync sample at or before `sample`; 0 when there is none.
  std::size_t sync_at_or_before(std::size_t sample) const;
  /// The first sync sample after `sample`; size() when there is none.
  std::size_t sync_after(std::size_t sample) const;

  std::vector<std::uint64_t> offsets;
  std::vector<std::uint32_t> sizes;
  std::vector<std::int64_t> decode_times;         // size() + 1 of them; the last one is the end
  std::vector<std::int32_t> composition_offsets;  // empty: all 0
  std::vector<std::uint32_t> sync_samples;        // ascending; meaningless when all_sync
  bool all_sync = true;
};

/// How many pictures a decoder must hold back to give them in presentation order.
int reorder_depth_of(const SampleTable& samples);

/// What an edit list says, reduced to the one form that is supported: leading empty edits, then at
/// most one edit at normal speed.
struct EditList {
  bool present = false;
  std::int64_t empty_duration = 0;  // sum of the leading empty edits, in movie time scale ticks
  std::int64_t media_time = 0;      // where the edit begins, in media time scale ticks
  std::int64_t duration = 0;        // of the edit, in movie time scale ticks
};

/// Which samples are presented, and when.
struct Presentation {
  /// Samples composed at ticks [begin, end) are presented, others only decoded.
  std::int64_t begin = std::numeric_limits<std::int64_t>::min();
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  /// Presentation time = (composition time + shift) / time scale + shift_s.
  std::int64_t shift = 0;
  /// What remains of a shift that is no whole number of ticks, seconds. 0 for a parsed file.
  double shift_s = 0.0;
};

/// Where the boxes of a file's top level lie. `media_data` is the first 'mdat'.
struct Mp4Layout {
  std::uint64_t movie_offset = 0;
  std::uint64_t media_data_offset = 0;
  std::uint64_t media_data_payload_offset = 0;
  std::uint64_t media_data_payload_bytes = 0;
};

/// What a file is parsed for.
enum class Mp4Use {
  kDecode,  ///< the codec is one of Codec, its configuration is there
  kIndex,   ///< any codec; Mp4Index::layout is complete, so an 'mdat' has to be there
};

/// A run of a video's samples, for Mp4Index::of_part().
struct Mp4Part {
  std::string_view name;  ///< what messages call the video
  std::uint32_t track_id = 1;
  std::uint32_t time_scale = 0;
  /// Body of the sample description box; its first entry is used.
  std::vector<std::uint8_t> sample_description;
  SampleTable samples;
  /// Of the whole video, so that decoders can go from part to part.
  int reorder_depth = 0;
  Presentation presentation;
};

class Mp4Index {
 public:
  /// Parses the boxes of a whole file. Throws Error.
  static Mp4Index parse(ByteReader& reader, Mp4Use use = Mp4Use::kDecode);
  /// An index of samples that are known already, for decoding. Throws Error when the sample
  /// description is damaged or its codec unknown, the table is empty, or no sample is presented.
  static Mp4Index of_part(Mp4Part part);

  /// The brand box with its header, as it is in the file; empty when there is none.
  std::vector<std::uint8_t> file_type_box;
  bool moov_before_mdat = false;
  Mp4Layout layout;  ///< only when parsed for Mp4Use::kIndex
  std::uint32_t movie_time_scale = 0;
  std::uint64_t movie_duration = 0;

  std::uint32_t track_id = 0;
  /// Size of the picture on the screen, as the track header has it, whole pixels.
  std::uint32_t track_width = 0;
  std::uint32_t track_height = 0;
  std::uint32_t time_scale = 0;      // ticks a second of the media
  std::uint64_t media_duration = 0;  // as mdhd states it, ticks
  EditList edit;
  /// Body of the sample description box, as it is in the file.
  std::vector<std::uint8_t> sample_description;
  /// Which of its entries the samples use, counted from 1.
  std::uint32_t description_number = 1;
  std::string codec_tag;  // "avc1", "hev1", "av01", ...
  Codec codec = Codec::kH264;
  int width = 0;
  int height = 0;
  /// Contents of the decoder configuration box (avcC, hvcC, av1C).
  std::vector<std::uint8_t> decoder_configuration;

  SampleTable samples;
  /// Of the whole video: see reorder_depth_of().
  int reorder_depth = 0;

  // ---- The presentation
  // --------------------------------------------------------------------------
  /// Frames that are presented.
  std::size_t frame_count() const { return order_.empty() ? identity_count_ : order_.size(); }
  /// The sample that is presented as number `frame`, 0 <= frame < frame_count().
  std::size_t sample_of_frame(std::size_t frame) const {
    return order_.empty() ? identity_first_ + frame : order_[frame];
  }
  /// When a presented sample is shown, in ticks and in seconds of the edited time line.
  std::int64_t presentation_ticks(std::size_t sample) const {
    return samples.composition_time(sample) + presentation_.shift;
  }
  double presentation_time(std::size_t sample) const {
    return static_cast<double>(presentation_ticks(sample)) / time_scale + presentation_.shift_s;
  }
  const Presentation& presentation() const { return presentation_; }
  /// The presented frame whose time is nearest to `time_s` (the earlier one of two equally near).
  std::size_t nearest_frame(double time_s) const;

 private:
  void derive_presentation(std::string_view name);
  std::int64_t order_presented(std::string_view name);

  Presentation presentation_;
  // Presented samples by time. When decode order is presentation order, a range says it all.
  std::vector<std::uint32_t> order_;
  std::size_t identity_first_ = 0;
  std::size_t identity_count_ = 0;
};

}  // namespace lerobot::video
