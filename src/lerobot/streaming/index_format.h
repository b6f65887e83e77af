// The bytes of a mapped index: our own, private to this machine (docs/sidecars.md, "Mapped index").
//
//   data      of each video: presentation times (float64), then durations, composition offsets,
//             sizes, byte offsets and sync samples, each column aligned to 8 bytes, in the smallest
//             integer type that holds it; a column whose numbers are all equal has one of them
//   texts     paths and sample descriptions; equal ones once
//   records   one a video, of a fixed size, sorted by path
//   footer    of a fixed size: where the records are, and for what the index was made
//
// Opening looks at the footer alone. A record, and what it refers to, is checked when it is first
// used: the checksums of the record and its text, then that of the data.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lerobot/streaming/sidecar_file.h"

namespace lerobot::streaming {

inline constexpr std::array<char, 8> kIndexMagic = {'L', 'R', 'C', 'P', 'V', 'I', 'D', 'X'};
inline constexpr std::uint32_t kIndexVersion = 1;

/// The integer columns in the order of the data.
enum IndexColumn { kDurations, kCompositionOffsets, kSizes, kOffsets, kSyncSamples, kColumns };

struct IndexText {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  std::uint32_t crc = 0;
};

struct IndexColumnRecord {
  std::uint64_t offset = 0;  ///< from the beginning of the video's data
  NumberType type = NumberType::kI64;
  std::uint8_t constant = 0;
  std::uint8_t reserved[6] = {};
};

struct IndexRecord {
  std::uint32_t crc = 0;  ///< of the rest of the record
  std::uint32_t data_crc = 0;
  std::uint64_t data_offset = 0;
  std::uint64_t data_bytes = 0;
  IndexText path;
  IndexText sample_description;
  std::uint64_t file_bytes = 0;
  std::uint64_t sample_count = 0;
  std::uint64_t sync_count = 0;
  std::uint64_t file_type_bytes = 0;
  std::uint32_t time_scale = 0;
  std::uint32_t track_id = 0;
  std::int32_t reorder_depth = 0;
  std::uint32_t flags = 0;
  std::int64_t least_composition_offset = 0;
  std::int64_t largest_composition_offset = 0;
  // video::Presentation, valid with kHasPresentation.
  std::int64_t presentation_begin = 0;
  std::int64_t presentation_end = 0;
  std::int64_t presentation_shift = 0;
  std::array<IndexColumnRecord, kColumns> columns;
};

// IndexRecord::flags
inline constexpr std::uint32_t kReordered = 1;
inline constexpr std::uint32_t kTimesAscend = 2;
inline constexpr std::uint32_t kOffsetsAscend = 4;
inline constexpr std::uint32_t kHasPresentation = 8;

struct IndexFooter {
  std::array<char, 8> magic = kIndexMagic;
  std::uint32_t version = kIndexVersion;
  std::uint32_t crc = 0;  ///< of the footer with 0 in this place
  std::uint64_t file_bytes = 0;
  std::uint64_t records_offset = 0;
  std::uint64_t video_count = 0;
  std::array<char, 64> content_digest{};   ///< of the sidecar: content_digest()
  std::array<char, 64> identity_digest{};  ///< identity_digest()
};

static_assert(sizeof(IndexRecord) == 224 && sizeof(IndexFooter) == 168);

/// A video's data and its record, without places and texts.
struct EncodedVideo {
  IndexRecord record;
  std::vector<std::uint8_t> data;
};
EncodedVideo encode(const SidecarVideo& video, const SidecarArrays& arrays);

/// The checksum that belongs into `crc`.
std::uint32_t checksum(const IndexRecord& record);
std::uint32_t checksum(const IndexFooter& footer);

}  // namespace lerobot::streaming
