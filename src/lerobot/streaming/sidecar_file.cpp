#include "lerobot/streaming/sidecar_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lerobot/base/checked.h"
#include "lerobot/base/digest.h"
#include "lerobot/base/error.h"
#include "lerobot/serialization/npy.h"
#include "lerobot/video/mp4_box.h"

namespace lerobot::streaming {
namespace {

namespace fs = std::filesystem;
using video::Mp4Index;
using video::Presentation;

constexpr const char* kManifest = "manifest_json.npy";
constexpr const char* kPts = "sample_pts.npy";
constexpr const char* kDurations = "sample_durations.npy";
constexpr const char* kCompositionOffsets = "sample_composition_offsets.npy";
constexpr const char* kSizes = "sample_sizes.npy";
constexpr const char* kOffsets = "sample_offsets.npy";
constexpr const char* kSyncSamples = "sync_samples.npy";
constexpr const char* kPresentation = "presentation.npy";

/// What LeRobot assumes for a file without one: isom, version 0x200, compatible isom iso2 mp41.
std::vector<std::uint8_t> default_file_type_box() {
  constexpr std::string_view kBox(
      "\0\0\0\x1c"
      "ftypisom\0\0\2\0isomiso2mp41",
      28);
  return {kBox.begin(), kBox.end()};
}

/// The sample description with the one entry that the samples use: readers of a sidecar take the
/// first.
std::vector<std::uint8_t> used_description(const Mp4Index& index) {
  if (index.description_number == 1) return index.sample_description;
  const std::vector<std::uint8_t>& body = index.sample_description;
  constexpr std::size_t kHead = 8;  // version, flags, number of entries
  std::vector<std::uint8_t> used{body.begin(), body.begin() + kHead - 1};
  used.push_back(1);
  std::size_t at = kHead;
  for (std::uint32_t entry = 1;; ++entry) {
    const auto header = video::read_box_header(std::span(body).subspan(at), body.size() - at);
    check_internal(header.has_value(), "a parsed sample description is whole");
    const auto begin = body.begin() + static_cast<std::ptrdiff_t>(at);
    if (entry == index.description_number) {
      used.insert(used.end(), begin, begin + static_cast<std::ptrdiff_t>(header->total_bytes));
      std::fill(used.begin() + 4, used.begin() + kHead - 1, std::uint8_t{0});
      return used;
    }
    at += header->total_bytes;
  }
}

/// The constant between composition and presentation time, seconds.
double edit_offset_s(const Mp4Index& index) {
  if (!index.edit.present) return 0.0;
  return static_cast<double>(index.edit.empty_duration) / index.movie_time_scale -
         static_cast<double>(index.edit.media_time) / index.time_scale;
}

/// What pts alone does not say: set when a frame is hidden, or presented at another time.
std::optional<Presentation> differing_presentation(const Mp4Index& index) {
  if (!index.edit.present) return std::nullopt;
  const Presentation& presentation = index.presentation();
  constexpr double kSameS = 1e-9;
  const double shift_s = static_cast<double>(presentation.shift) / index.time_scale;
  const bool same_times = std::abs(shift_s - edit_offset_s(index)) < kSameS;
  if (same_times && index.frame_count() == index.samples.size()) return std::nullopt;
  return presentation;
}

std::vector<std::int64_t> sync_samples_of(const Mp4Index& index) {
  const video::SampleTable& samples = index.samples;
  if (!samples.all_sync) return {samples.sync_samples.begin(), samples.sync_samples.end()};
  std::vector<std::int64_t> all(samples.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  return all;
}

std::string member_name(std::size_t video, std::string_view array) {
  return fmt::format("{}/{}", video, array);
}

std::optional<Presentation> read_presentation(const serialization::ZipReader& zip,
                                              const std::string& member) {
  if (!zip.find(member)) return std::nullopt;
  const std::vector<std::int64_t> numbers = serialization::read_npy_integers(zip, member);
  if (numbers.size() != 3)
    fail("{}: {}: expected 3 numbers, found {}", zip.name(), member, numbers.size());
  return Presentation{numbers[0], numbers[1], numbers[2], 0.0};
}

NumberColumn column_of(const std::vector<std::int64_t>& numbers) {
  return {reinterpret_cast<const std::uint8_t*>(numbers.data()), NumberType::kI64, numbers.size(),
          false};
}

SidecarManifest read_manifest(const serialization::ZipReader& zip, const std::string& name) {
  return parse_manifest(serialization::read_npy_text(zip, kManifest), name);
}

}  // namespace

TrackSamples SidecarArrays::view(const SidecarVideo& video) const {
  TrackSamples samples;
  samples.pts = pts;
  samples.durations = column_of(durations);
  samples.composition_offsets = column_of(composition_offsets);
  samples.sizes = column_of(sizes);
  samples.offsets = column_of(offsets);
  samples.sync_samples = column_of(sync_samples);
  samples.time_scale = video.timescale;
  samples.file_bytes = video.size;
  samples.file_type_bytes = video.file_type_box.size();
  samples.sample_description_bytes = video.sample_description.size();
  describe_columns(samples);
  return samples;
}

SidecarVideo sidecar_video(const Mp4Index& index, std::string path, std::uint64_t size) {
  SidecarVideo video;
  video.path = std::move(path);
  video.size = size;
  video.file_type_box = index.file_type_box.empty() ? default_file_type_box() : index.file_type_box;
  video.moov_offset = index.layout.movie_offset;
  video.mdat_offset = index.layout.media_data_offset;
  video.mdat_payload_offset = index.layout.media_data_payload_offset;
  video.mdat_payload_size = index.layout.media_data_payload_bytes;
  video.faststart = index.moov_before_mdat;
  video.codec = index.codec_tag;
  video.timescale = index.time_scale;
  video.duration = index.media_duration;
  if (video.duration == 0)  // not stated by the media header: the movie's, in its own time scale
    video.duration = static_cast<std::uint64_t>(static_cast<double>(index.movie_duration) *
                                                index.time_scale / index.movie_time_scale);
  video.track_id = index.track_id;
  video.width = index.track_width;
  video.height = index.track_height;
  video.sample_description = used_description(index);
  return video;
}

SidecarArrays sidecar_arrays(const Mp4Index& index) {
  const video::SampleTable& samples = index.samples;
  const std::size_t count = samples.size();
  const double edit_s = edit_offset_s(index);
  SidecarArrays arrays;
  arrays.pts.resize(count);
  arrays.durations.resize(count);
  arrays.composition_offsets.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    arrays.pts[i] = static_cast<double>(samples.composition_time(i)) / index.time_scale + edit_s;
    arrays.durations[i] = samples.duration(i);
    arrays.composition_offsets[i] = samples.composition_offset(i);
  }
  arrays.sizes.assign(samples.sizes.begin(), samples.sizes.end());
  arrays.offsets.assign(samples.offsets.begin(), samples.offsets.end());
  arrays.sync_samples = sync_samples_of(index);
  arrays.presentation = differing_presentation(index);
  return arrays;
}

void check_arrays(const SidecarVideo& video, const SidecarArrays& arrays, std::string_view name) {
  const std::size_t count = arrays.pts.size();
  const auto broken = [&](const std::string& what) {
    fail("{}: {}: {}; make the sidecar anew", name, video.path, what);
  };
  if (count == 0) broken("it has no samples");
  if (count > std::numeric_limits<std::uint32_t>::max())
    broken(fmt::format("it has {} samples", count));
  for (const auto* array :
       {&arrays.durations, &arrays.composition_offsets, &arrays.sizes, &arrays.offsets})
    if (array->size() != count)
      broken(fmt::format("its arrays have {} and {} samples", count, array->size()));
  constexpr std::int64_t k32Bits = std::numeric_limits<std::uint32_t>::max();
  constexpr std::int64_t kLargestSample = std::numeric_limits<std::int32_t>::max() / 2;
  // Times beyond this don't occur in a real file and would overflow sums.
  constexpr std::int64_t kMaximumTicks = std::int64_t{1} << 53;
  const auto in_32_bits = [](std::int64_t value) { return std::in_range<std::int32_t>(value); };
  constexpr double kSameTimeS = 1e-6;  // far below a tick, far above the rounding of a day's times
  std::int64_t decode_time = 0;
  double first_shift_s = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t size = arrays.sizes[i], offset = arrays.offsets[i];
    if (size <= 0 || size > kLargestSample || offset < 0 ||
        static_cast<std::uint64_t>(offset) > video.size ||
        static_cast<std::uint64_t>(size) > video.size - static_cast<std::uint64_t>(offset))
      broken(fmt::format("sample {} of {} bytes at byte {} is not in the file's {}", i, size,
                         offset, video.size));
    if (!(std::abs(arrays.pts[i]) * video.timescale <= static_cast<double>(kMaximumTicks)))
      broken(fmt::format("sample {} is presented at {} s", i, arrays.pts[i]));
    if (arrays.durations[i] < 0 || arrays.durations[i] > k32Bits ||
        !in_32_bits(arrays.composition_offsets[i]))
      broken(fmt::format("sample {} has duration {} and composition offset {}", i,
                         arrays.durations[i], arrays.composition_offsets[i]));
    // All of one file have the same distance to their composition times.
    const double shift_s =
        arrays.pts[i] -
        static_cast<double>(decode_time + arrays.composition_offsets[i]) / video.timescale;
    if (i == 0) first_shift_s = shift_s;
    if (std::abs(shift_s - first_shift_s) > kSameTimeS)
      broken(
          fmt::format("sample {} is presented {} s away from where durations and composition "
                      "offsets put it",
                      i, shift_s - first_shift_s));
    decode_time += arrays.durations[i];
    if (decode_time > kMaximumTicks) broken(fmt::format("sample {} is beyond all times", i));
  }
  std::int64_t previous = -1;
  for (const std::int64_t sync : arrays.sync_samples) {
    if (sync <= previous || sync >= static_cast<std::int64_t>(count))
      broken(fmt::format("sync sample {} comes after {}, there are {} samples", sync, previous,
                         count));
    previous = sync;
  }
  constexpr std::int64_t kMaximumShift = std::int64_t{1} << 62;
  if (arrays.presentation && std::abs(static_cast<double>(arrays.presentation->shift)) >
                                 static_cast<double>(kMaximumShift))
    broken("its presentation is shifted beyond all times");
}

SidecarFile::SidecarFile(const fs::path& path)
    : path_(path),
      file_(path),
      zip_(file_.bytes(), path.string(), serialization::ZipCompression::kDeflate),
      manifest_(read_manifest(zip_, path.string())) {}

SidecarArrays SidecarFile::arrays(std::size_t video) const {
  using serialization::read_npy_floats;
  using serialization::read_npy_integers;
  SidecarArrays arrays;
  arrays.pts = read_npy_floats(zip_, member_name(video, kPts));
  arrays.durations = read_npy_integers(zip_, member_name(video, kDurations));
  arrays.composition_offsets = read_npy_integers(zip_, member_name(video, kCompositionOffsets));
  arrays.sizes = read_npy_integers(zip_, member_name(video, kSizes));
  arrays.offsets = read_npy_integers(zip_, member_name(video, kOffsets));
  arrays.sync_samples = read_npy_integers(zip_, member_name(video, kSyncSamples));
  arrays.presentation = read_presentation(zip_, member_name(video, kPresentation));
  check_arrays(manifest_.videos[video], arrays, path_.string());
  return arrays;
}

std::string content_digest(const fs::path& path) {
  const MappedFile file(path);
  return sha256_hex(serialization::ZipReader::directory_of(file.bytes(), path.string()));
}

CompressedArrays compress(const SidecarArrays& arrays) {
  CompressedArrays result;
  const auto add_integers = [&](const char* name, std::span<const std::int64_t> numbers) {
    result.members.push_back(
        {name, serialization::deflate(serialization::npy_of_integers(numbers))});
  };
  result.members.push_back(
      {kPts, serialization::deflate(serialization::npy_of_floats(arrays.pts))});
  add_integers(kDurations, arrays.durations);
  add_integers(kCompositionOffsets, arrays.composition_offsets);
  add_integers(kSizes, arrays.sizes);
  add_integers(kOffsets, arrays.offsets);
  add_integers(kSyncSamples, arrays.sync_samples);
  if (arrays.presentation) {
    const std::int64_t numbers[] = {arrays.presentation->begin, arrays.presentation->end,
                                    arrays.presentation->shift};
    add_integers(kPresentation, numbers);
  }
  return result;
}

}  // namespace lerobot::streaming
