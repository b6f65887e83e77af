#include "lerobot/streaming/index_format.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "lerobot/video/mp4_index.h"

namespace lerobot::streaming {
namespace {

constexpr std::size_t kAlignment = 8;

void align(std::vector<std::uint8_t>& data) {
  data.resize((data.size() + kAlignment - 1) / kAlignment * kAlignment);
}

template <class T>
void append(std::vector<std::uint8_t>& data, std::span<const std::int64_t> numbers) {
  const std::size_t begin = data.size();
  data.resize(begin + numbers.size() * sizeof(T));
  std::uint8_t* at = data.data() + begin;
  for (const std::int64_t number : numbers) {
    const T narrow = static_cast<T>(number);
    std::memcpy(at, &narrow, sizeof narrow);
    at += sizeof narrow;
  }
}

/// The smallest type that holds both, unsigned ones before signed ones.
NumberType smallest_type(std::int64_t least, std::int64_t largest) {
  const auto holds = [&]<class T>(T) {
    return std::in_range<T>(least) && std::in_range<T>(largest);
  };
  if (holds(std::uint8_t{})) return NumberType::kU8;
  if (holds(std::int8_t{})) return NumberType::kI8;
  if (holds(std::uint16_t{})) return NumberType::kU16;
  if (holds(std::int16_t{})) return NumberType::kI16;
  if (holds(std::uint32_t{})) return NumberType::kU32;
  if (holds(std::int32_t{})) return NumberType::kI32;
  return NumberType::kI64;
}

void append(std::vector<std::uint8_t>& data, NumberType type,
            std::span<const std::int64_t> numbers) {
  switch (type) {
    case NumberType::kI8:
      return append<std::int8_t>(data, numbers);
    case NumberType::kI16:
      return append<std::int16_t>(data, numbers);
    case NumberType::kI32:
      return append<std::int32_t>(data, numbers);
    case NumberType::kI64:
      return append<std::int64_t>(data, numbers);
    case NumberType::kU8:
      return append<std::uint8_t>(data, numbers);
    case NumberType::kU16:
      return append<std::uint16_t>(data, numbers);
    case NumberType::kU32:
      return append<std::uint32_t>(data, numbers);
  }
}

IndexColumnRecord append_column(std::vector<std::uint8_t>& data,
                                std::span<const std::int64_t> numbers, bool may_be_constant) {
  align(data);
  IndexColumnRecord column;
  column.offset = data.size();
  if (numbers.empty()) return column;
  const auto [least, largest] = std::minmax_element(numbers.begin(), numbers.end());
  column.type = smallest_type(*least, *largest);
  column.constant = may_be_constant && *least == *largest ? 1 : 0;
  append(data, column.type, column.constant ? numbers.first(1) : numbers);
  return column;
}

int reorder_depth(const SidecarArrays& arrays) {
  video::SampleTable table;
  table.sizes.resize(arrays.pts.size());
  table.decode_times.reserve(arrays.pts.size() + 1);
  std::int64_t time = 0;
  for (const std::int64_t duration : arrays.durations) {
    table.decode_times.push_back(time);
    time += duration;
  }
  table.decode_times.push_back(time);
  for (const std::int64_t offset : arrays.composition_offsets)
    table.composition_offsets.push_back(static_cast<std::int32_t>(offset));
  return video::reorder_depth_of(table);
}

template <class T>
std::span<const std::uint8_t> object_bytes(const T& object) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const std::uint8_t*>(&object), sizeof object};
}

}  // namespace

EncodedVideo encode(const SidecarVideo& video, const SidecarArrays& arrays) {
  EncodedVideo encoded;
  IndexRecord& record = encoded.record;
  std::vector<std::uint8_t>& data = encoded.data;
  const TrackSamples samples = arrays.view(video);

  data.resize(arrays.pts.size() * sizeof(double));
  std::memcpy(data.data(), arrays.pts.data(), data.size());
  record.columns[kDurations] = append_column(data, arrays.durations, true);
  record.columns[kCompositionOffsets] = append_column(data, arrays.composition_offsets, true);
  record.columns[kSizes] = append_column(data, arrays.sizes, true);
  record.columns[kOffsets] = append_column(data, arrays.offsets, true);
  record.columns[kSyncSamples] = append_column(data, arrays.sync_samples, false);
  align(data);

  record.file_bytes = video.size;
  record.sample_count = arrays.pts.size();
  record.sync_count = arrays.sync_samples.size();
  record.file_type_bytes = video.file_type_box.size();
  record.time_scale = video.timescale;
  record.track_id = video.track_id;
  record.reorder_depth = samples.reordered ? reorder_depth(arrays) : 0;
  record.flags = (samples.reordered ? kReordered : 0) | (samples.times_ascend ? kTimesAscend : 0) |
                 (samples.offsets_ascend ? kOffsetsAscend : 0) |
                 (arrays.presentation ? kHasPresentation : 0);
  record.least_composition_offset = samples.least_composition_offset;
  record.largest_composition_offset = samples.largest_composition_offset;
  if (arrays.presentation) {
    record.presentation_begin = arrays.presentation->begin;
    record.presentation_end = arrays.presentation->end;
    record.presentation_shift = arrays.presentation->shift;
  }
  record.data_bytes = data.size();
  record.data_crc = serialization::crc32(data);
  return encoded;
}

std::uint32_t checksum(const IndexRecord& record) {
  return serialization::crc32(object_bytes(record).subspan(sizeof record.crc));
}

std::uint32_t checksum(const IndexFooter& footer) {
  IndexFooter copy = footer;
  copy.crc = 0;
  return serialization::crc32(object_bytes(copy));
}

}  // namespace lerobot::streaming
