// Which samples of a video hold an episode, and what they count in the byte budget.
//
// The rules are those of LeRobot's reader, sample for sample and byte for byte: the bytes decide
// which episode is admitted when the budget binds, hence the order of samples (docs/sidecars.md,
// "Slices").
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lerobot/streaming/video_index.h"

namespace lerobot::streaming {

/// How a number is stored.
enum class NumberType : std::uint8_t { kI8, kI16, kI32, kI64, kU8, kU16, kU32 };

constexpr std::size_t bytes_of(NumberType type) {
  constexpr std::uint8_t kBytes[] = {1, 2, 4, 8, 1, 2, 4};
  return kBytes[static_cast<std::size_t>(type)];
}

/// One integer a sample, stored in a narrow type, or once for all samples. A view.
class NumberColumn {
 public:
  NumberColumn() = default;
  /// `data` holds `count` numbers, or one if `constant`.
  NumberColumn(const std::uint8_t* data, NumberType type, std::size_t count, bool constant)
      : data_(data), count_(count), type_(type), constant_(constant) {}

  std::size_t size() const { return count_; }
  bool constant() const { return constant_; }
  std::int64_t operator[](std::size_t i) const {
    const std::uint8_t* at = data_ + (constant_ ? 0 : i) * bytes_of(type_);
    switch (type_) {
      case NumberType::kI8:
        return load<std::int8_t>(at);
      case NumberType::kI16:
        return load<std::int16_t>(at);
      case NumberType::kI32:
        return load<std::int32_t>(at);
      case NumberType::kI64:
        return load<std::int64_t>(at);
      case NumberType::kU8:
        return load<std::uint8_t>(at);
      case NumberType::kU16:
        return load<std::uint16_t>(at);
      case NumberType::kU32:
        return load<std::uint32_t>(at);
    }
    return 0;
  }

 private:
  template <class T>
  static std::int64_t load(const std::uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  const std::uint8_t* data_ = nullptr;
  std::size_t count_ = 0;
  NumberType type_ = NumberType::kI64;
  bool constant_ = false;
};

/// The samples of one video in decode order. A view.
struct TrackSamples {
  std::span<const double> pts;       ///< seconds
  NumberColumn durations;            ///< ticks
  NumberColumn composition_offsets;  ///< ticks
  NumberColumn sizes;                ///< bytes
  NumberColumn offsets;              ///< bytes from the file's beginning
  NumberColumn sync_samples;         ///< sample numbers, ascending
  std::uint32_t time_scale = 0;      ///< ticks a second
  std::uint64_t file_bytes = 0;
  std::uint64_t file_type_bytes = 0;           ///< of the 'ftyp' box, header included
  std::uint64_t sample_description_bytes = 0;  ///< of the body of 'stsd'

  // What is known of the columns, so that a slice costs a few probes.
  bool reordered = false;       ///< a composition offset is not 0
  bool times_ascend = false;    ///< pts less composition offset never falls (but for rounding)
  bool offsets_ascend = false;  ///< each sample begins at or behind the end of the one before
  std::int64_t least_composition_offset = 0;
  std::int64_t largest_composition_offset = 0;

  std::size_t size() const { return pts.size(); }
};

/// Fills in what is known of the columns by a look at every sample.
void describe_columns(TrackSamples& samples);

/// The slice of [from_s, to_s] seconds (EpisodeSlice::file is left 0). `name` stands for the video
/// in messages. Throws Error for a range that is none.
EpisodeSlice slice_of(const TrackSamples& samples, double from_s, double to_s,
                      std::string_view name);

/// The exact size of the MP4 file that LeRobot synthesizes from samples [first, last] whose bytes
/// are [byte_offset, byte_offset + byte_length) of the source.
std::uint64_t synthesized_bytes(const TrackSamples& samples, std::size_t first, std::size_t last,
                                std::uint64_t byte_offset, std::uint64_t byte_length);

/// An upper bound of reserved_bytes of any slice: the whole file with the largest tables.
std::uint64_t synthesized_bytes_bound(std::uint64_t sample_count, std::uint64_t file_bytes,
                                      std::uint64_t file_type_bytes,
                                      std::uint64_t sample_description_bytes);

}  // namespace lerobot::streaming
