#include "lerobot/video/mp4_sample_table.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "lerobot/base/error.h"

namespace lerobot::video {
namespace {

// Decode and composition times beyond this don't occur in a real file and would overflow sums.
constexpr std::int64_t kMaximumTicks = std::int64_t{1} << 53;

/// A box that holds `count` and entries of a fixed size after it.
struct Entries {
  const std::uint8_t* bytes;
  std::uint32_t count;
};

Entries read_entries(const Box& box, std::uint64_t entry_bytes) {
  const std::uint32_t count = box.u32(4);
  return {box.table(8, count, entry_bytes), count};
}

/// What stsz or stz2 says, not expanded yet: memory is taken once the tables have been compared.
struct Sizes {
  Box box;
  std::uint32_t count = 0;
  std::uint32_t constant = 0;     // not 0: every sample has this size
  std::uint32_t field_bits = 32;  // width of an entry of `entries`
  const std::uint8_t* entries = nullptr;
};

Sizes read_sizes(const Box& tables, std::uint64_t file_bytes) {
  if (std::optional<Box> compact = tables.find(box_type("stz2"))) {
    Sizes sizes{*compact};
    sizes.field_bits = compact->u32(4) & 0xff;
    sizes.count = compact->u32(8);
    if (sizes.field_bits != 4 && sizes.field_bits != 8 && sizes.field_bits != 16)
      compact->broken("its entries have {} bits, expected 4, 8 or 16", sizes.field_bits);
    const std::uint64_t bytes = (std::uint64_t{sizes.count} * sizes.field_bits + 7) / 8;
    sizes.entries = compact->table(12, bytes, 1);
    return sizes;
  }
  Sizes sizes{tables.require(box_type("stsz"))};
  sizes.constant = sizes.box.u32(4);
  sizes.count = sizes.box.u32(8);
  if (sizes.constant == 0) {
    sizes.entries = sizes.box.table(12, sizes.count, 4);
  } else if (sizes.count > file_bytes / sizes.constant) {
    sizes.box.broken("it claims {} samples of {} bytes, the file has {} bytes", sizes.count,
                     sizes.constant, file_bytes);
  }
  return sizes;
}

std::uint32_t size_of_sample(const Sizes& sizes, std::size_t i) {
  if (sizes.constant != 0) return sizes.constant;
  switch (sizes.field_bits) {
    case 4:
      return sizes.entries[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;
    case 8:
      return sizes.entries[i];
    case 16:
      return static_cast<std::uint32_t>(sizes.entries[2 * i]) << 8 | sizes.entries[2 * i + 1];
    default:
      return load_be32(sizes.entries + 4 * i);
  }
}

/// Checks that the runs (count first, 8 bytes each) of `box` cover exactly `samples` samples.
void check_runs(const Box& box, const Entries& runs, std::uint32_t samples) {
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < runs.count; ++i)
    total += load_be32(runs.bytes + 8 * std::size_t{i});
  if (total != samples) box.broken("it covers {} samples, the size table has {}", total, samples);
}

struct Chunks {
  Box offsets_box;
  Entries offsets;
  bool wide = false;  // 64-bit offsets
  Box runs_box;
  Entries runs;  // first chunk, samples a chunk, description: 12 bytes each

  std::uint64_t offset(std::size_t chunk) const {
    return wide ? load_be64(offsets.bytes + 8 * chunk) : load_be32(offsets.bytes + 4 * chunk);
  }
};

/// Checks that chunks and runs are possible and hold exactly `samples` samples.
Chunks read_chunks(const Box& tables, std::uint32_t samples, std::uint32_t& description) {
  std::optional<Box> wide = tables.find(box_type("co64"));
  std::optional<Box> narrow = wide ? std::nullopt : tables.find(box_type("stco"));
  if (!wide && !narrow) tables.broken("the chunk offsets ('stco' or 'co64') are missing in it");
  Chunks chunks{wide ? *wide : *narrow, {}, wide.has_value(), tables.require(box_type("stsc")), {}};
  chunks.offsets = read_entries(chunks.offsets_box, chunks.wide ? 8 : 4);
  chunks.runs = read_entries(chunks.runs_box, 12);

  const Box& box = chunks.runs_box;
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < chunks.runs.count; ++i) {
    const std::uint8_t* run = chunks.runs.bytes + 12 * std::size_t{i};
    const std::uint64_t first = load_be32(run);
    const std::uint64_t next =
        i + 1 < chunks.runs.count ? load_be32(run + 12) : std::uint64_t{chunks.offsets.count} + 1;
    if ((i == 0 && first != 1) || next <= first || next - 1 > chunks.offsets.count)
      box.broken("run {} covers chunks {} to {}, there are {}", i + 1, first, next - 1,
                 chunks.offsets.count);
    if (i == 0)
      description = load_be32(run + 8);
    else if (description != load_be32(run + 8))
      fail(
          "{}: MP4 box {}: samples with different descriptions ({} and {}) in one track are not "
          "supported; re-encode it: ffmpeg -i in.mp4 -g 2 out.mp4",
          box.file(), box.path(), description, load_be32(run + 8));
    total += (next - first) * load_be32(run + 4);  // below 2^64: each factor is below 2^32
    if (total > samples) break;
  }
  if (total != samples)
    box.broken("its chunks hold {}{} samples, the size table has {}",
               total > samples ? "at least " : "", total, samples);
  return chunks;
}

void place_samples(const Chunks& chunks, std::uint64_t file_bytes, SampleTable& table) {
  const Box& box = chunks.offsets_box;
  std::size_t sample = 0;
  for (std::uint32_t i = 0; i < chunks.runs.count; ++i) {
    const std::uint8_t* run = chunks.runs.bytes + 12 * std::size_t{i};
    const std::uint64_t end =
        i + 1 < chunks.runs.count ? load_be32(run + 12) : std::uint64_t{chunks.offsets.count} + 1;
    const std::uint32_t samples_a_chunk = load_be32(run + 4);
    for (std::uint64_t chunk = load_be32(run); chunk < end; ++chunk) {
      std::uint64_t offset = chunks.offset(chunk - 1);
      for (std::uint32_t k = 0; k < samples_a_chunk; ++k, ++sample) {
        const std::uint64_t bytes = table.sizes[sample];
        if (offset > file_bytes || bytes > file_bytes - offset)
          fail(
              "{}: the file is cut: frame {} of {} (MP4 box {}) lies at byte {} and has {} bytes, "
              "the file ends after {}; copy or download it again",
              box.file(), sample + 1, table.sizes.size(), box.path(), offset, bytes, file_bytes);
        table.offsets[sample] = offset;
        offset += bytes;
      }
    }
  }
}

void time_samples(const Box& box, const Entries& runs, SampleTable& table) {
  std::int64_t time = 0;
  std::size_t sample = 0;
  for (std::uint32_t i = 0; i < runs.count; ++i) {
    const std::uint8_t* run = runs.bytes + 8 * std::size_t{i};
    const std::uint32_t count = load_be32(run);
    const std::uint32_t duration = load_be32(run + 4);
    const std::uint64_t run_duration = std::uint64_t{count} * duration;
    if (run_duration > static_cast<std::uint64_t>(kMaximumTicks - time))
      box.broken("decode times reach {} + {} ticks", time, run_duration);
    for (std::uint32_t k = 0; k < count; ++k) {
      table.decode_times[sample++] = time;
      time += duration;
    }
  }
  table.decode_times[sample] = time;
}

void read_composition_offsets(const Box& tables, SampleTable& table) {
  const std::optional<Box> box = tables.find(box_type("ctts"));
  if (!box) return;
  if (box->version() > 1) box->broken("version {} is not known", box->version());
  const Entries runs = read_entries(*box, 8);
  check_runs(*box, runs, static_cast<std::uint32_t>(table.size()));
  table.composition_offsets.resize(table.size());
  std::size_t sample = 0;
  for (std::uint32_t i = 0; i < runs.count; ++i) {
    const std::uint8_t* run = runs.bytes + 8 * std::size_t{i};
    const std::uint32_t count = load_be32(run);
    // Version 0 is unsigned by the letter; writers put negative offsets into it all the same, and
    // FFmpeg reads both versions as signed.
    const auto offset = static_cast<std::int32_t>(load_be32(run + 4));
    std::fill_n(table.composition_offsets.begin() + static_cast<std::ptrdiff_t>(sample), count,
                offset);
    sample += count;
  }
}

void read_sync_samples(const Box& tables, SampleTable& table) {
  const std::optional<Box> box = tables.find(box_type("stss"));
  table.all_sync = !box;
  if (!box) return;
  const Entries entries = read_entries(*box, 4);
  if (entries.count > table.size())
    box->broken("it names {} samples, the size table has {}", entries.count, table.size());
  table.sync_samples.resize(entries.count);
  std::uint32_t previous = 0;
  for (std::uint32_t i = 0; i < entries.count; ++i) {
    const std::uint32_t number = load_be32(entries.bytes + 4 * std::size_t{i});
    if (number <= previous || number > table.size())
      box->broken("entry {} names sample {} after {}, the size table has {}", i + 1, number,
                  previous, table.size());
    table.sync_samples[i] = number - 1;
    previous = number;
  }
}

}  // namespace

bool SampleTable::is_sync(std::size_t sample) const {
  return all_sync || std::binary_search(sync_samples.begin(), sync_samples.end(), sample);
}

std::size_t SampleTable::sync_at_or_before(std::size_t sample) const {
  if (all_sync) return sample;
  const auto after = std::upper_bound(sync_samples.begin(), sync_samples.end(), sample);
  return after == sync_samples.begin() ? 0 : *(after - 1);
}

std::size_t SampleTable::sync_after(std::size_t sample) const {
  if (all_sync) return sample + 1;
  const auto after = std::upper_bound(sync_samples.begin(), sync_samples.end(), sample);
  return after == sync_samples.end() ? size() : *after;
}

SampleTable read_sample_table(const Box& tables, std::uint64_t file_bytes,
                              std::uint32_t& description) {
  // First what the tables claim, compared with each other; only then memory for the samples.
  const Sizes sizes = read_sizes(tables, file_bytes);
  if (sizes.count == 0) sizes.box.broken("the track has no samples (frames)");
  const Box durations_box = tables.require(box_type("stts"));
  const Entries durations = read_entries(durations_box, 8);
  check_runs(durations_box, durations, sizes.count);
  const Chunks chunks = read_chunks(tables, sizes.count, description);

  SampleTable table;
  table.sizes.resize(sizes.count);
  for (std::size_t i = 0; i < sizes.count; ++i) {
    table.sizes[i] = size_of_sample(sizes, i);
    // libavcodec takes sizes as int; an empty packet would mean "end of stream" to it.
    if (table.sizes[i] == 0 || table.sizes[i] > std::numeric_limits<std::int32_t>::max() / 2)
      sizes.box.broken("sample {} has {} bytes", i + 1, table.sizes[i]);
  }
  table.offsets.resize(sizes.count);
  place_samples(chunks, file_bytes, table);
  table.decode_times.resize(std::size_t{sizes.count} + 1);
  time_samples(durations_box, durations, table);
  read_composition_offsets(tables, table);
  read_sync_samples(tables, table);
  return table;
}

}  // namespace lerobot::video
