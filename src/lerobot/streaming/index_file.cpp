#include <cstring>
#include <limits>

#include "lerobot/serialization/zip_archive.h"
#include "lerobot/streaming/mapped_index.h"

namespace lerobot::streaming {

IndexFile::IndexFile(const fs::path& path) : path_(path), in_use_(path), file_(path) {
  if (file_.size() < sizeof footer_) damaged("it is cut");
  std::memcpy(&footer_, file_.bytes().data() + file_.size() - sizeof footer_, sizeof footer_);
  if (footer_.magic != kIndexMagic) damaged("its end is not that of an index");
  if (footer_.version != kIndexVersion) damaged("it has another version");
  if (footer_.crc != checksum(footer_) || footer_.file_bytes != file_.size())
    damaged("its footer is not what was written");
  constexpr std::uint64_t kMostVideos = std::numeric_limits<std::uint32_t>::max();
  const std::uint64_t records_end = file_.size() - sizeof footer_;
  if (footer_.video_count > kMostVideos || footer_.records_offset > records_end ||
      footer_.records_offset % alignof(IndexRecord) != 0 ||
      footer_.video_count * sizeof(IndexRecord) != records_end - footer_.records_offset)
    damaged("its records are not where they should be");
  checked_ = std::make_unique<std::atomic<std::uint8_t>[]>(footer_.video_count);
}

void IndexFile::damaged(std::string_view what) const {
  throw IndexDamaged(
      fmt::format("{}: damaged index of MP4 files: {}; remove the file, it is made "
                  "again from the sidecar",
                  path_.string(), what));
}

std::span<const std::uint8_t> IndexFile::slice(std::uint64_t offset, std::uint64_t bytes,
                                               std::string_view what) const {
  if (offset > footer_.records_offset || bytes > footer_.records_offset - offset) damaged(what);
  return file_.bytes().subspan(offset, bytes);
}

std::string_view IndexFile::text(const IndexText& text, std::string_view what) const {
  const std::span<const std::uint8_t> bytes = slice(text.offset, text.bytes, what);
  if (serialization::crc32(bytes) != text.crc) damaged(what);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const IndexRecord& IndexFile::record(std::size_t video) const {
  check_internal(video < size(), "a video's number is in the index");
  const auto& record = *reinterpret_cast<const IndexRecord*>(
      file_.bytes().data() + footer_.records_offset + video * sizeof(IndexRecord));
  if (checked_[video].load(std::memory_order_acquire) >= kRecord) return record;
  check_record(record);
  std::uint8_t nothing = kNothing;
  checked_[video].compare_exchange_strong(nothing, kRecord, std::memory_order_release);
  return record;
}

void IndexFile::check_record(const IndexRecord& record) const {
  if (record.crc != checksum(record)) damaged("a record is not what was written");
  text(record.path, "a video's path is not what was written");
  text(record.sample_description, "a sample description is not what was written");
  slice(record.data_offset, record.data_bytes, "a video's samples lie outside the file");
  // The checksum is no protection against a writer's mistake: what is used as a size is checked.
  const std::uint64_t count = record.sample_count;
  if (record.data_offset % alignof(double) != 0 || record.time_scale == 0 || count == 0 ||
      count > record.data_bytes / sizeof(double) || record.sync_count > count)
    damaged("a record is impossible");
  for (std::size_t i = 0; i < kColumns; ++i) {
    const IndexColumnRecord& column = record.columns[i];
    const std::uint64_t length = i == kSyncSamples ? record.sync_count : count;
    if (column.type > NumberType::kU32 || column.constant > 1 ||
        (column.constant == 1 && i == kSyncSamples) || column.offset > record.data_bytes ||
        (column.constant ? 1 : length) >
            (record.data_bytes - column.offset) / bytes_of(column.type))
      damaged("a column lies outside its video's data");
  }
}

void IndexFile::check_data(std::size_t video, const IndexRecord& record) const {
  if (checked_[video].load(std::memory_order_acquire) == kData) return;
  const auto data = file_.bytes().subspan(record.data_offset, record.data_bytes);
  if (serialization::crc32(data) != record.data_crc)
    damaged("the samples of a video are not what was written");
  checked_[video].store(kData, std::memory_order_release);
}

std::string_view IndexFile::video_path(std::size_t video) const {
  const IndexText& path = record(video).path;
  return {reinterpret_cast<const char*>(file_.bytes().data() + path.offset), path.bytes};
}

std::span<const std::uint8_t> IndexFile::sample_description(std::size_t video) const {
  const IndexText& description = record(video).sample_description;
  return file_.bytes().subspan(description.offset, description.bytes);
}

std::optional<std::size_t> IndexFile::find(std::string_view path) const {
  std::size_t low = 0, high = size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (video_path(middle) < path)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == size() || video_path(low) != path) return std::nullopt;
  return low;
}

TrackSamples IndexFile::samples(std::size_t video) const {
  const IndexRecord& record = this->record(video);
  check_data(video, record);
  const std::uint8_t* data = file_.bytes().data() + record.data_offset;
  const auto column = [&](IndexColumn which) {
    const IndexColumnRecord& place = record.columns[which];
    const std::uint64_t count = which == kSyncSamples ? record.sync_count : record.sample_count;
    return NumberColumn(data + place.offset, place.type, count, place.constant != 0);
  };
  TrackSamples samples;
  samples.pts = {reinterpret_cast<const double*>(data), record.sample_count};
  samples.durations = column(kDurations);
  samples.composition_offsets = column(kCompositionOffsets);
  samples.sizes = column(kSizes);
  samples.offsets = column(kOffsets);
  samples.sync_samples = column(kSyncSamples);
  samples.time_scale = record.time_scale;
  samples.file_bytes = record.file_bytes;
  samples.file_type_bytes = record.file_type_bytes;
  samples.sample_description_bytes = record.sample_description.bytes;
  samples.reordered = (record.flags & kReordered) != 0;
  samples.times_ascend = (record.flags & kTimesAscend) != 0;
  samples.offsets_ascend = (record.flags & kOffsetsAscend) != 0;
  samples.least_composition_offset = record.least_composition_offset;
  samples.largest_composition_offset = record.largest_composition_offset;
  return samples;
}

}  // namespace lerobot::streaming
