#include "lerobot/streaming/episode_slice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lerobot/base/error.h"

namespace lerobot::streaming {
namespace {

// ---- The samples of an interval
// -----------------------------------------------------------------------------

/// The first i in [0, size) for which is_behind(i) holds, size if there is none; is_behind is false
/// up to some i and true from there on.
template <class Predicate>
std::size_t partition(std::size_t size, const Predicate& is_behind) {
  std::size_t low = 0, high = size;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (is_behind(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Sync samples at or before `sample`.
std::size_t syncs_through(const TrackSamples& samples, std::size_t sample) {
  return partition(samples.sync_samples.size(), [&](std::size_t i) {
    return samples.sync_samples[i] > static_cast<std::int64_t>(sample);
  });
}

/// Decode time in seconds, plus a constant.
double decode_time_s(const TrackSamples& samples, std::size_t i) {
  return samples.pts[i] - static_cast<double>(samples.composition_offsets[i]) / samples.time_scale;
}

// Decode times that are computed back from presentation times are rounded. Ascending ones fall by
// less than the first number; a search allows for the second one.
constexpr double kRoundingS = 1e-9;
constexpr double kSearchSlackS = 1e-6;

struct Interval {
  std::size_t first;
  std::size_t last;
  double first_pts;
};

/// Without reordering: the samples from the first one presented at or after low_s to the last one
/// at or before high_s.
Interval ordered_interval(const TrackSamples& samples, double low_s, double high_s) {
  const std::size_t count = samples.size();
  std::size_t first = count, behind = 0;
  if (samples.times_ascend) {
    first = partition(count, [&](std::size_t i) { return samples.pts[i] >= low_s; });
    behind = partition(count, [&](std::size_t i) { return samples.pts[i] > high_s; });
  } else {
    for (std::size_t i = count; i-- > 0;)
      if (samples.pts[i] >= low_s) first = i;
    for (std::size_t i = 0; i < count; ++i)
      if (samples.pts[i] <= high_s) behind = i + 1;
  }
  first = std::min(first, count - 1);
  const std::size_t last = std::max(first, behind == 0 ? 0 : behind - 1);
  return {first, last, samples.pts[first]};
}

std::size_t nearest_sample(const TrackSamples& samples, double time_s) {
  std::size_t nearest = 0;
  for (std::size_t i = 1; i < samples.size(); ++i)
    if (std::abs(samples.pts[i] - time_s) < std::abs(samples.pts[nearest] - time_s)) nearest = i;
  return nearest;
}

/// With reordering: all samples presented in the interval, and what lies between them in decode
/// order.
Interval reordered_interval(const TrackSamples& samples, double low_s, double high_s,
                            double from_s) {
  std::size_t begin = 0, end = samples.size();
  if (samples.times_ascend) {
    // A sample presented in the interval is decoded at most the extreme offsets away from it.
    const double least = static_cast<double>(samples.least_composition_offset) / samples.time_scale;
    const double largest =
        static_cast<double>(samples.largest_composition_offset) / samples.time_scale;
    begin = partition(samples.size(), [&](std::size_t i) {
      return decode_time_s(samples, i) >= low_s - largest - kSearchSlackS;
    });
    end = partition(samples.size(), [&](std::size_t i) {
      return decode_time_s(samples, i) > high_s - least + kSearchSlackS;
    });
  }
  bool found = false;
  Interval interval{0, 0, std::numeric_limits<double>::infinity()};
  for (std::size_t i = begin; i < end; ++i) {
    const double pts = samples.pts[i];
    if (pts < low_s || pts > high_s) continue;
    if (!found) interval.first = i;
    found = true;
    interval.last = i;
    interval.first_pts = std::min(interval.first_pts, pts);
  }
  if (found) return interval;
  const std::size_t nearest = nearest_sample(samples, from_s);
  return {nearest, nearest, samples.pts[nearest]};
}

/// Moves the interval's beginning to the sync sample from which it can be decoded.
void begin_at_sync(const TrackSamples& samples, Interval& interval) {
  if (samples.sync_samples.size() == 0) {
    interval.first = 0;
    return;
  }
  const auto sync = [&](std::size_t i) {
    return static_cast<std::size_t>(samples.sync_samples[i]);
  };
  // With open GOPs the sync sample right before may be presented later than leading pictures that
  // are wanted; those refer to the GOP before.
  std::size_t count = syncs_through(samples, interval.first);
  while (count > 0 && samples.pts[sync(count - 1)] > interval.first_pts) --count;
  interval.first = sync(count > 0 ? count - 1 : 0);
  interval.last = std::max(interval.last, interval.first);
}

/// The last sample before the next sync sample behind `sample`.
std::size_t end_of_group(const TrackSamples& samples, std::size_t sample) {
  const std::size_t next = syncs_through(samples, sample);
  return next == samples.sync_samples.size()
             ? samples.size() - 1
             : static_cast<std::size_t>(samples.sync_samples[next]) - 1;
}

void find_bytes(const TrackSamples& samples, EpisodeSlice& slice) {
  const auto begin_of = [&](std::size_t i) {
    return static_cast<std::uint64_t>(samples.offsets[i]);
  };
  const auto end_of = [&](std::size_t i) {
    return begin_of(i) + static_cast<std::uint64_t>(samples.sizes[i]);
  };
  std::uint64_t begin = begin_of(slice.first_sample);
  std::uint64_t end = end_of(slice.last_sample);
  if (!samples.offsets_ascend)
    for (std::size_t i = slice.first_sample; i <= slice.last_sample; ++i) {
      begin = std::min(begin, begin_of(i));
      end = std::max(end, end_of(i));
    }
  end = std::min(end, samples.file_bytes);
  slice.byte_offset = begin;
  slice.byte_length = end - std::min(begin, end);
}

// ---- The synthesized file
// -----------------------------------------------------------------------------

constexpr std::uint64_t k32Bits = std::numeric_limits<std::uint32_t>::max();

/// How many runs of equal numbers the samples have.
std::uint64_t runs_of(const NumberColumn& column, std::size_t first, std::size_t last) {
  if (column.constant()) return 1;
  std::uint64_t runs = 1;
  for (std::size_t i = first + 1; i <= last; ++i) runs += column[i] != column[i - 1] ? 1 : 0;
  return runs;
}

bool any_not_zero(const NumberColumn& column, std::size_t first, std::size_t last) {
  if (column.constant()) return column[first] != 0;
  for (std::size_t i = first; i <= last; ++i)
    if (column[i] != 0) return true;
  return false;
}

/// Sync samples that the synthesized file names: with reordering not those inside after which a
/// sample of the same group is presented earlier (open GOPs).
std::uint64_t kept_syncs(const TrackSamples& samples, std::size_t first, std::size_t last) {
  const std::size_t behind = syncs_through(samples, last);
  const std::size_t begin = partition(samples.sync_samples.size(), [&](std::size_t i) {
    return samples.sync_samples[i] >= static_cast<std::int64_t>(first);
  });
  if (!samples.reordered) return behind - begin;

  std::uint64_t dropped = 0;
  std::size_t sync = begin;
  std::int64_t decode_time = 0, time_of_sync = 0;
  bool droppable = false;  // the group's sync sample is not the first one and still counts
  for (std::size_t i = first; i <= last; ++i) {
    const std::int64_t time = decode_time + samples.composition_offsets[i];
    decode_time += samples.durations[i];
    if (sync < behind && samples.sync_samples[sync] == static_cast<std::int64_t>(i)) {
      droppable = sync > begin;
      time_of_sync = time;
      ++sync;
    } else if (droppable && time < time_of_sync) {
      ++dropped;
      droppable = false;
    }
  }
  return behind - begin - dropped;
}

// Bytes of boxes with a fixed size, headers included.
constexpr std::uint64_t kHeader = 8;
constexpr std::uint64_t kMovieHeader = 108;
constexpr std::uint64_t kTrackHeader = 92;
constexpr std::uint64_t kEdits = 44;
constexpr std::uint64_t kMediaHeader = 32;
constexpr std::uint64_t kHandler = 45;
constexpr std::uint64_t kVideoMediaHeader = 20;
constexpr std::uint64_t kDataInformation = 36;
constexpr std::uint64_t kSampleToChunk = 28;
constexpr std::uint64_t kTable = 16;      // a full box with a count, before its entries
constexpr std::uint64_t kSizeTable = 20;  // one number more

/// A box around `payload` bytes: its header grows when the size leaves 32 bits.
std::uint64_t boxed(std::uint64_t payload) {
  return payload + (payload + kHeader > k32Bits ? 2 * kHeader : kHeader);
}

struct SynthesizedTables {
  std::uint64_t samples = 0;
  std::uint64_t duration_runs = 0;
  std::uint64_t composition_runs = 0;  // 0: no such box
  std::uint64_t sync_samples = 0;
  bool has_edit = false;
};

std::uint64_t movie_bytes(const TrackSamples& source, const SynthesizedTables& tables,
                          std::uint64_t offset_bytes) {
  std::uint64_t table = boxed(source.sample_description_bytes);
  table += kTable + 8 * tables.duration_runs;
  if (tables.composition_runs > 0) table += kTable + 8 * tables.composition_runs;
  table += kSampleToChunk;
  table += kSizeTable + 4 * tables.samples;
  if (tables.sync_samples > 0) table += kTable + 4 * tables.sync_samples;
  table += kTable + offset_bytes * tables.samples;
  const std::uint64_t information = kVideoMediaHeader + kDataInformation + boxed(table);
  const std::uint64_t media = kMediaHeader + kHandler + boxed(information);
  const std::uint64_t track = kTrackHeader + (tables.has_edit ? kEdits : 0) + boxed(media);
  return boxed(kMovieHeader + boxed(track));
}

}  // namespace

void describe_columns(TrackSamples& samples) {
  const std::size_t count = samples.size();
  samples.reordered = false;
  samples.times_ascend = samples.time_scale > 0;
  samples.offsets_ascend = true;
  samples.least_composition_offset = count > 0 ? samples.composition_offsets[0] : 0;
  samples.largest_composition_offset = samples.least_composition_offset;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t offset = samples.composition_offsets[i];
    samples.reordered = samples.reordered || offset != 0;
    samples.least_composition_offset = std::min(samples.least_composition_offset, offset);
    samples.largest_composition_offset = std::max(samples.largest_composition_offset, offset);
    if (i > 0)
      samples.offsets_ascend = samples.offsets_ascend &&
                               samples.offsets[i] >= samples.offsets[i - 1] + samples.sizes[i - 1];
  }
  // Without offsets the presentation times themselves are searched: they may not fall at all.
  const double allowed = samples.reordered ? kRoundingS : 0.0;
  double latest = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; samples.times_ascend && i < count; ++i) {
    const double time = samples.reordered ? decode_time_s(samples, i) : samples.pts[i];
    samples.times_ascend = time >= latest - allowed;
    latest = std::max(latest, time);
  }
}

EpisodeSlice slice_of(const TrackSamples& samples, double from_s, double to_s,
                      std::string_view name) {
  if (!std::isfinite(from_s) || !std::isfinite(to_s) || to_s < from_s)
    fail("{}: an episode from {} s to {} s is no range; check videos/*_timestamp in meta/episodes",
         name, from_s, to_s);
  if (samples.size() == 0) fail("{}: the index has no samples; make the sidecar anew", name);
  constexpr double kLeastPaddingS = 0.1, kPaddingShare = 0.05;
  const double padding = std::max(kLeastPaddingS, kPaddingShare * (to_s - from_s));
  const double low_s = std::max(0.0, from_s - padding);
  const double high_s = to_s + padding;
  Interval interval = samples.reordered ? reordered_interval(samples, low_s, high_s, from_s)
                                        : ordered_interval(samples, low_s, high_s);
  begin_at_sync(samples, interval);
  if (samples.reordered) interval.last = end_of_group(samples, interval.last);

  EpisodeSlice slice;
  slice.first_sample = interval.first;
  slice.last_sample = interval.last;
  find_bytes(samples, slice);
  slice.reserved_bytes = synthesized_bytes(samples, slice.first_sample, slice.last_sample,
                                           slice.byte_offset, slice.byte_length);
  return slice;
}

std::uint64_t synthesized_bytes(const TrackSamples& samples, std::size_t first, std::size_t last,
                                std::uint64_t byte_offset, std::uint64_t byte_length) {
  SynthesizedTables tables;
  tables.samples = last - first + 1;
  tables.duration_runs = runs_of(samples.durations, first, last);
  if (samples.reordered && any_not_zero(samples.composition_offsets, first, last))
    tables.composition_runs = runs_of(samples.composition_offsets, first, last);
  tables.sync_samples = kept_syncs(samples, first, last);
  tables.has_edit = samples.composition_offsets[first] != 0;

  std::uint64_t largest = static_cast<std::uint64_t>(samples.offsets[last]);
  if (!samples.offsets_ascend)
    for (std::size_t i = first; i <= last; ++i)
      largest = std::max(largest, static_cast<std::uint64_t>(samples.offsets[i]));
  constexpr std::uint64_t kNarrow = 4, kWide = 8;
  const std::uint64_t media_data = boxed(byte_length);
  std::uint64_t head = samples.file_type_bytes + movie_bytes(samples, tables, kNarrow);
  if (head + (media_data - byte_length) + (largest - byte_offset) > k32Bits)
    head = samples.file_type_bytes + movie_bytes(samples, tables, kWide);
  return head + media_data;
}

std::uint64_t synthesized_bytes_bound(std::uint64_t sample_count, std::uint64_t file_bytes,
                                      std::uint64_t file_type_bytes,
                                      std::uint64_t sample_description_bytes) {
  // Every sample with a run of its own in each table, 64-bit offsets, an edit, wide headers.
  constexpr std::uint64_t kPerSample = 8 + 8 + 4 + 4 + 8;
  constexpr std::uint64_t kBoxes = 8;  // moov, trak, mdia, minf, stbl, stsd, mdat and one to spare
  return file_bytes + file_type_bytes + sample_description_bytes + kPerSample * sample_count +
         kMovieHeader + kTrackHeader + kEdits + kMediaHeader + kHandler + kVideoMediaHeader +
         kDataInformation + kSampleToChunk + 4 * kTable + kSizeTable + kBoxes * 2 * kHeader;
}

}  // namespace lerobot::streaming
