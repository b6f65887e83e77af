#include "lerobot/video/mp4_index.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/video/mp4_box.h"
#include "lerobot/video/mp4_sample_table.h"

namespace lerobot::video {
namespace {

constexpr BoxType kFileType = box_type("ftyp");
constexpr BoxType kMovie = box_type("moov");
constexpr BoxType kMediaData = box_type("mdat");
constexpr BoxType kMovieFragment = box_type("moof");

// Bytes of a visual sample entry in front of its child boxes (14496-12, section 12.1.3).
constexpr std::uint64_t kVisualSampleEntryBytes = 78;

[[noreturn]] void refuse_fragmented(std::string_view name) {
  fail(
      "{}: fragmented MP4 (moof boxes) is not supported; remux it: "
      "ffmpeg -i in.mp4 -c copy -movflags +faststart out.mp4",
      name);
}

/// What may stand at the beginning of an MP4 or QuickTime file.
bool begins_a_file(BoxType type) {
  static constexpr BoxType kFirst[] = {kFileType,        kMovie,           kMediaData,
                                       box_type("free"), box_type("skip"), box_type("wide"),
                                       box_type("styp"), box_type("pnot"), kMovieFragment};
  return std::find(std::begin(kFirst), std::end(kFirst), type) != std::end(kFirst);
}

struct TopLevel {
  Mp4Layout layout;
  BoxHeader movie;
  std::vector<std::uint8_t> file_type_box;
  bool moov_before_mdat = true;
  bool has_movie = false;
  bool has_media_data = false;
  std::uint64_t next = 0;  // where the walk goes on
};

/// Walks the top level, touching headers only, until moov is found and, if wanted, the first mdat.
void walk_top_level(ByteReader& reader, bool want_media_data, TopLevel& top) {
  const std::string_view name = reader.name();
  const std::uint64_t file_bytes = reader.size();
  while (!top.has_movie || (want_media_data && !top.has_media_data)) {
    const std::uint64_t offset = top.next;
    if (offset >= file_bytes) break;
    const std::uint64_t left = file_bytes - offset;
    const std::optional<BoxHeader> header =
        read_box_header(reader.read(offset, std::min<std::uint64_t>(left, 16)), left);
    if (offset == 0 && (!header || !begins_a_file(header->type)))
      fail("{}: is not an MP4 file: it does not begin with a box that one begins with", name);
    if (!header)
      fail(
          "{}: the MP4 box at byte {} of {} is cut or has an impossible size; the file is "
          "damaged: copy or download it again",
          name, offset, file_bytes);
    if (header->type == kMovieFragment) refuse_fragmented(name);
    if (header->total_bytes > left)
      fail(
          "{}: the file is cut: its MP4 box '{}' at byte {} needs {} bytes, the file ends after "
          "{}; copy or download it again",
          name, box_name(header->type), offset, header->total_bytes, left);
    if (header->type == kFileType && top.file_type_box.empty()) {
      const std::span<const std::uint8_t> box = reader.read(offset, header->total_bytes);
      top.file_type_box.assign(box.begin(), box.end());
    }
    if (header->type == kMediaData && !top.has_media_data) {
      top.has_media_data = true;
      top.moov_before_mdat = top.has_movie;
      top.layout.media_data_offset = offset;
      top.layout.media_data_payload_offset = offset + header->header_bytes;
      top.layout.media_data_payload_bytes = header->total_bytes - header->header_bytes;
    }
    if (header->type == kMovie && !top.has_movie) {
      top.has_movie = true;
      top.layout.movie_offset = offset;
      top.movie = *header;
    }
    top.next = offset + header->total_bytes;
  }
  if (!top.has_movie)
    fail(
        "{}: has no 'moov' box in its {} bytes: the recording was not finished or the file is cut; "
        "copy or record it again",
        name, file_bytes);
  if (want_media_data && !top.has_media_data)
    fail("{}: has no 'mdat' box in its {} bytes, so no frames; copy or record it again", name,
         file_bytes);
}

/// The track to read: the first enabled video track, or the first one when none is enabled.
Box find_video_track(const Box& movie) {
  std::optional<Box> enabled;
  std::optional<Box> any;
  movie.for_each_child(0, [&](BoxType type, Box track) {
    if (type != box_type("trak") || enabled) return;
    const std::optional<Box> media = track.find(box_type("mdia"));
    const std::optional<Box> handler = media ? media->find(box_type("hdlr")) : std::nullopt;
    if (!handler || handler->u32(8) != box_type("vide")) return;
    const bool is_enabled = (track.require(box_type("tkhd")).flags() & 1) != 0;
    if (is_enabled)
      enabled.emplace(std::move(track));
    else if (!any)
      any.emplace(std::move(track));
  });
  if (enabled) return *std::move(enabled);
  if (!any) movie.broken("it has no video track");
  return *std::move(any);
}

/// Time scale and duration stand at the same place in mvhd and mdhd.
void read_times(const Box& header, std::uint32_t& time_scale, std::uint64_t& duration) {
  const bool wide = header.version() == 1;
  if (header.version() > 1) header.broken("version {} is not known", header.version());
  time_scale = header.u32(wide ? 20 : 12);
  duration = wide ? header.u64(24) : header.u32(16);
  if (time_scale == 0) header.broken("its time scale is 0");
}

/// Refuses a display matrix that turns or mirrors the picture: LeRobot's readers disagree about it.
void check_display_matrix(const Box& track_header) {
  const std::uint64_t matrix = track_header.version() == 1 ? 52 : 40;
  const auto entry = [&](int i) {
    return track_header.u32(matrix + 4 * static_cast<std::uint64_t>(i));
  };
  constexpr std::uint32_t kOne = 0x10000;
  const bool upright =
      entry(1) == 0 && entry(3) == 0 && entry(0) < 0x80000000 && entry(4) < 0x80000000;
  if (!upright)
    fail(
        "{}: MP4 box {}: a display matrix that rotates or mirrors the picture is not supported "
        "(first row {:#x} {:#x}, expected {:#x} 0x0); re-encode it: ffmpeg -i in.mp4 -g 2 out.mp4",
        track_header.file(), track_header.path(), entry(0), entry(1), kOne);
}

struct EditEntry {
  std::int64_t duration;
  std::int64_t media_time;
  std::uint32_t rate;  // 16.16
};

std::vector<EditEntry> read_edits(const Box& list) {
  const std::uint8_t version = list.version();
  if (version > 1) list.broken("version {} is not known", version);
  const std::uint64_t count = list.u32(4);
  const std::uint64_t entry_bytes = version == 1 ? 20 : 12;
  const std::uint8_t* bytes = list.table(8, count, entry_bytes);
  std::vector<EditEntry> edits(count);
  for (EditEntry& edit : edits) {
    if (version == 1) {
      edit.duration = static_cast<std::int64_t>(load_be64(bytes));
      edit.media_time = static_cast<std::int64_t>(load_be64(bytes + 8));
    } else {
      edit.duration = load_be32(bytes);
      edit.media_time = static_cast<std::int32_t>(load_be32(bytes + 4));
    }
    edit.rate = load_be32(bytes + entry_bytes - 4);
    bytes += entry_bytes;
  }
  return edits;
}

// Ticks beyond this don't occur in a real file and would overflow sums.
constexpr std::int64_t kMaximumTicks = std::int64_t{1} << 53;

EditList read_edit_list(const Box& track) {
  EditList result;
  const std::optional<Box> container = track.find(box_type("edts"));
  const std::optional<Box> list = container ? container->find(box_type("elst")) : std::nullopt;
  if (!list) return result;
  const auto refuse = [&](std::string_view what, std::size_t number, std::size_t count) {
    fail(
        "{}: MP4 box {}: unsupported edit list: {} (edit {} of {}); only leading empty edits and "
        "one edit at normal speed are supported; re-encode it: ffmpeg -i in.mp4 -g 2 out.mp4",
        list->file(), list->path(), what, number, count);
  };
  const std::vector<EditEntry> edits = read_edits(*list);
  bool found_media = false;
  for (std::size_t i = 0; i < edits.size(); ++i) {
    const EditEntry& edit = edits[i];
    const bool empty = edit.media_time == -1;
    if (edit.media_time < -1) list->broken("edit {} begins at {}", i + 1, edit.media_time);
    if (edit.media_time > kMaximumTicks || edit.duration < 0 || edit.duration > kMaximumTicks)
      list->broken("edit {} begins at {} and lasts {} ticks", i + 1, edit.media_time,
                   edit.duration);
    if (found_media)
      refuse(empty ? "an empty edit inside the presentation"
                   : "several segments (a repeated or cut presentation)",
             i + 1, edits.size());
    if (edit.rate != 0x10000)
      refuse(edit.rate < 0x10000 && edit.rate >> 16 == 0
                 ? std::string("a dwell or slow motion (media rate below 1)")
                 : fmt::format("media rate {}", static_cast<std::int32_t>(edit.rate) / 65536.0),
             i + 1, edits.size());
    if (empty) {
      result.empty_duration += edit.duration;
      if (result.empty_duration > kMaximumTicks)
        list->broken("its empty edits last {} ticks", result.empty_duration);
    } else {
      found_media = true;
      result.media_time = edit.media_time;
      result.duration = edit.duration;
    }
  }
  if (!edits.empty() && !found_media) refuse("nothing but empty edits", edits.size(), edits.size());
  result.present = found_media;
  return result;
}

struct CodecTag {
  BoxType sample_entry;
  Codec codec;
  BoxType configuration;
};
constexpr CodecTag kCodecTags[] = {
    {box_type("avc1"), Codec::kH264, box_type("avcC")},
    {box_type("avc3"), Codec::kH264, box_type("avcC")},
    {box_type("hvc1"), Codec::kHevc, box_type("hvcC")},
    {box_type("hev1"), Codec::kHevc, box_type("hvcC")},
    {box_type("av01"), Codec::kAv1, box_type("av1C")},
};

/// The codec of a sample entry and what the decoder needs.
void read_sample_entry(const Box& stsd, BoxType type, const Box& entry, Mp4Index& index) {
  const CodecTag* tag = std::find_if(std::begin(kCodecTags), std::end(kCodecTags),
                                     [&](const CodecTag& t) { return t.sample_entry == type; });
  if (tag == std::end(kCodecTags))
    fail(
        "{}: video codec '{}' is not supported (H.264, HEVC and AV1 are); re-encode it: "
        "ffmpeg -i in.mp4 -c:v libx264 -g 2 out.mp4",
        stsd.file(), index.codec_tag);
  index.codec = tag->codec;
  index.width = entry.u16(24);
  index.height = entry.u16(26);
  if (index.width == 0 || index.height == 0)
    entry.broken("the picture size is {}x{}", index.width, index.height);
  const std::optional<Box> configuration = entry.find(tag->configuration, kVisualSampleEntryBytes);
  if (configuration) {
    const std::span<const std::uint8_t> bytes = configuration->payload();
    index.decoder_configuration.assign(bytes.begin(), bytes.end());
  } else if (tag->codec != Codec::kAv1) {  // AV1 carries its sequence header in the samples too
    entry.broken("the box '{}' is missing in it", box_name(tag->configuration));
  }
}

void read_sample_description(const Box& stsd, std::uint32_t wanted, Mp4Use use, Mp4Index& index) {
  const std::span<const std::uint8_t> body = stsd.payload();
  index.sample_description.assign(body.begin(), body.end());
  index.description_number = wanted;
  const std::uint32_t count = stsd.u32(4);
  if (wanted == 0 || wanted > count)
    stsd.broken("samples use description {}, it has {}", wanted, count);
  std::uint32_t number = 0;
  bool found = false;
  stsd.for_each_child(8, [&](BoxType type, const Box& entry) {
    if (++number != wanted) return;
    found = true;
    index.codec_tag = box_name(type);
    if (use == Mp4Use::kDecode) read_sample_entry(stsd, type, entry, index);
  });
  if (!found) stsd.broken("it claims {} entries, it has {}", count, number);
}

/// value * numerator / denominator, rounded to nearest, halves away from zero, as FFmpeg rescales.
/// Every argument is at most 2^53 and the scales at most 2^32, so 128 bits hold the product.
std::int64_t rescale(std::int64_t value, std::uint32_t numerator, std::uint32_t denominator) {
  const auto product = static_cast<unsigned __int128>(value) * numerator + denominator / 2;
  const auto result = product / denominator;
  constexpr auto kLimit = std::numeric_limits<std::int64_t>::max() / 4;
  return result > static_cast<unsigned __int128>(kLimit) ? kLimit
                                                         : static_cast<std::int64_t>(result);
}

}  // namespace

std::string_view codec_name(Codec codec) {
  switch (codec) {
    case Codec::kH264:
      return "h264";
    case Codec::kHevc:
      return "hevc";
    case Codec::kAv1:
      return "av1";
  }
  throw InternalError("unknown codec");
}

Mp4Index Mp4Index::parse(ByteReader& reader, Mp4Use use) {
  Mp4Index index;
  TopLevel top;
  walk_top_level(reader, false, top);

  const Box movie(reader.name(), "moov",
                  reader.read(top.layout.movie_offset + top.movie.header_bytes,
                              top.movie.total_bytes - top.movie.header_bytes));
  read_times(movie.require(box_type("mvhd")), index.movie_time_scale, index.movie_duration);
  if (movie.find(box_type("mvex"))) refuse_fragmented(reader.name());

  const Box track = find_video_track(movie);
  const Box track_header = track.require(box_type("tkhd"));
  index.track_id = track_header.u32(track_header.version() == 1 ? 20 : 12);
  const std::uint64_t screen_size = track_header.version() == 1 ? 88 : 76;
  index.track_width = track_header.u32(screen_size) >> 16;
  index.track_height = track_header.u32(screen_size + 4) >> 16;
  check_display_matrix(track_header);
  const Box media = track.require(box_type("mdia"));
  read_times(media.require(box_type("mdhd")), index.time_scale, index.media_duration);
  index.edit = read_edit_list(track);

  const Box tables = media.require(box_type("minf")).require(box_type("stbl"));
  std::uint32_t description = 1;
  index.samples = read_sample_table(tables, reader.size(), description);
  read_sample_description(tables.require(box_type("stsd")), description, use, index);
  index.derive_presentation(reader.name());
  // Only now: a remote file is read in one direction.
  if (use == Mp4Use::kIndex) {
    walk_top_level(reader, true, top);
    index.layout = top.layout;
  }
  index.file_type_box = std::move(top.file_type_box);
  index.moov_before_mdat = top.moov_before_mdat;
  index.reorder_depth = reorder_depth_of(index.samples);
  return index;
}

Mp4Index Mp4Index::of_part(Mp4Part part) {
  if (part.time_scale == 0 || part.samples.size() == 0)
    fail("{}: the index has {} samples at {} ticks a second; make the sidecar anew", part.name,
         part.samples.size(), part.time_scale);
  Mp4Index index;
  index.track_id = part.track_id;
  index.time_scale = part.time_scale;
  const Box stsd(part.name, "stsd", part.sample_description);
  constexpr std::uint32_t kFirst = 1;
  read_sample_description(stsd, kFirst, Mp4Use::kDecode, index);
  index.samples = std::move(part.samples);
  index.reorder_depth = part.reorder_depth;
  index.presentation_ = part.presentation;
  index.order_presented(part.name);
  return index;
}

void Mp4Index::derive_presentation(std::string_view name) {
  if (edit.present) {
    presentation_.begin = edit.media_time;
    // A duration of 0 stands for "to the end of the media".
    if (edit.duration > 0)
      presentation_.end =
          presentation_.begin + rescale(edit.duration, time_scale, movie_time_scale);
  }
  const std::int64_t earliest = order_presented(name);
  if (edit.present)
    presentation_.shift = rescale(edit.empty_duration, time_scale, movie_time_scale) - earliest;
}

/// Finds the presented samples and their order; the composition time of the earliest.
std::int64_t Mp4Index::order_presented(std::string_view name) {
  const std::int64_t begin = presentation_.begin;
  const std::int64_t end = presentation_.end;
  const auto presented = [&](std::size_t sample) {
    const std::int64_t time = samples.composition_time(sample);
    return begin <= time && time < end;
  };

  std::size_t count = 0;
  std::size_t first = samples.size();
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  std::int64_t previous = std::numeric_limits<std::int64_t>::min();
  bool ascending = true;
  std::size_t last = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!presented(i)) continue;
    const std::int64_t time = samples.composition_time(i);
    if (count++ == 0) first = i;
    ascending = ascending && time > previous;
    previous = time;
    earliest = std::min(earliest, time);
    last = i;
  }
  if (count == 0)
    fail(
        "{}: the MP4 edit list hides every frame: it presents ticks {} to {}, the {} frames lie "
        "elsewhere; re-encode it",
        name, begin, end, samples.size());

  if (ascending && last - first + 1 == count) {
    identity_first_ = first;
    identity_count_ = count;
  } else {
    order_.reserve(count);
    for (std::size_t i = 0; i < samples.size(); ++i)
      if (presented(i)) order_.push_back(static_cast<std::uint32_t>(i));
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return samples.composition_time(a) < samples.composition_time(b);
    });
  }
  return earliest;
}

int reorder_depth_of(const SampleTable& samples) {
  int reorder_depth = 0;
  if (samples.composition_offsets.empty()) return reorder_depth;
  // No codec reorders over more pictures than its buffer holds: 16 (H.264 and HEVC, annex A).
  constexpr std::size_t kBuffer = 16;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const std::int64_t time = samples.composition_time(i);
    int shown_later = 0;
    for (std::size_t k = 1; k <= std::min(i, kBuffer); ++k)
      shown_later += samples.composition_time(i - k) > time ? 1 : 0;
    reorder_depth = std::max(reorder_depth, shown_later);
  }
  return reorder_depth;
}

std::size_t Mp4Index::nearest_frame(double time_s) const {
  std::size_t low = 0;
  std::size_t high = frame_count();  // the first frame at or after time_s is in [low, high]
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (presentation_time(sample_of_frame(middle)) < time_s)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == frame_count()) return low - 1;
  if (low == 0) return 0;
  const double before = time_s - presentation_time(sample_of_frame(low - 1));
  const double after = presentation_time(sample_of_frame(low)) - time_s;
  return before <= after ? low - 1 : low;
}

}  // namespace lerobot::video
