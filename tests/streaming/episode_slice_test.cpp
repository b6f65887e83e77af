// Slices and their sizes against a slow model written from the rules (docs/sidecars.md, "Slices"),
// and against MP4 files that are really synthesized.
#include "lerobot/streaming/episode_slice.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/streaming/sidecar_file.h"
#include "tests/video/test_videos.h"

namespace lerobot::streaming {
namespace {

using video::Bytes;
using video::make_box;
using video::put32;
using video::words;

/// A table with everything that a file can have.
struct Table {
  SidecarVideo video;
  SidecarArrays arrays;
  std::size_t size() const { return arrays.pts.size(); }
  bool reordered() const {
    return std::any_of(arrays.composition_offsets.begin(), arrays.composition_offsets.end(),
                       [](std::int64_t offset) { return offset != 0; });
  }
};

// ---- The slow model
// ---------------------------------------------------------------------------------

struct Slice {
  std::int64_t lo, hi;
  std::uint64_t offset, length;
};

Slice slow_slice(const Table& table, double from, double to) {
  const SidecarArrays& a = table.arrays;
  const auto n = static_cast<std::int64_t>(table.size());
  const double pad = std::max(0.1, 0.05 * (to - from));
  const double lo_ts = std::max(0.0, from - pad), hi_ts = to + pad;
  std::int64_t lo = -1, hi = -1;
  double first_pts = 0;
  if (!table.reordered()) {
    for (std::int64_t i = 0; i < n; ++i)
      if (a.pts[i] >= lo_ts && lo < 0) lo = i;
    for (std::int64_t i = 0; i < n; ++i)
      if (a.pts[i] <= hi_ts) hi = i;
    if (lo < 0) lo = n - 1;
    hi = std::max(hi, lo);
    first_pts = a.pts[lo];
  } else {
    std::vector<std::int64_t> inside;
    for (std::int64_t i = 0; i < n; ++i)
      if (a.pts[i] >= lo_ts && a.pts[i] <= hi_ts) inside.push_back(i);
    if (inside.empty()) {
      std::int64_t nearest = 0;
      for (std::int64_t i = 0; i < n; ++i)
        if (std::abs(a.pts[i] - from) < std::abs(a.pts[nearest] - from)) nearest = i;
      inside.push_back(nearest);
    }
    lo = inside.front();
    hi = inside.back();
    first_pts = a.pts[lo];
    for (const std::int64_t i : inside) first_pts = std::min(first_pts, a.pts[i]);
  }
  std::int64_t key = -1;
  for (const std::int64_t sync : a.sync_samples)
    if (sync <= lo && a.pts[sync] <= first_pts) key = sync;
  if (key < 0) {
    key = a.sync_samples.front();
    hi = std::max(hi, key);
  }
  lo = key;
  if (table.reordered()) {
    std::int64_t end = n - 1;
    for (auto sync = a.sync_samples.rbegin(); sync != a.sync_samples.rend(); ++sync)
      if (*sync > hi) end = *sync - 1;
    hi = end;
  }
  std::uint64_t begin = UINT64_MAX, end = 0;
  for (std::int64_t i = lo; i <= hi; ++i) {
    begin = std::min(begin, static_cast<std::uint64_t>(a.offsets[i]));
    end = std::max(end, static_cast<std::uint64_t>(a.offsets[i] + a.sizes[i]));
  }
  end = std::min(end, table.video.size);
  return {lo, hi, begin, end - begin};
}

// ---- The synthesizer
// ---------------------------------------------------------------------------------

Bytes join(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes table_box(std::string_view type, std::uint32_t version,
                const std::vector<std::uint32_t>& entries, std::uint32_t count) {
  Bytes payload = words({version << 24, count});
  const std::size_t begin = payload.size();
  payload.resize(begin + 4 * entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) put32(payload, begin + 4 * i, entries[i]);
  return make_box(type, payload);
}

Bytes runs_box(std::string_view type, std::uint32_t version, std::span<const std::int64_t> values) {
  std::vector<std::uint32_t> runs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<std::uint32_t>(values[i]);
    if (i == 0 || values[i] != values[i - 1])
      runs.insert(runs.end(), {1, value});
    else
      ++runs[runs.size() - 2];
  }
  return table_box(type, version, runs, static_cast<std::uint32_t>(runs.size() / 2));
}

Bytes full(std::size_t payload_bytes) { return Bytes(payload_bytes); }

/// The MP4 file of samples [lo, hi] with `payload` as its media data.
Bytes synthesize(const Table& table, const Slice& slice, const Bytes& payload) {
  const SidecarArrays& a = table.arrays;
  const auto part = [&](const std::vector<std::int64_t>& numbers) {
    return std::span(numbers).subspan(slice.lo, slice.hi - slice.lo + 1);
  };
  const auto durations = part(a.durations), offsets = part(a.composition_offsets);
  const auto n = static_cast<std::uint32_t>(durations.size());
  std::uint32_t duration = 0;
  for (const std::int64_t d : durations) duration += static_cast<std::uint32_t>(d);
  std::vector<std::uint32_t> syncs;
  for (std::size_t k = 0; k < a.sync_samples.size(); ++k) {
    const std::int64_t sync = a.sync_samples[k];
    if (sync < slice.lo || sync > slice.hi) continue;
    const std::int64_t next = k + 1 < a.sync_samples.size()
                                  ? a.sync_samples[k + 1]
                                  : static_cast<std::int64_t>(table.size());
    bool keep = true;
    if (table.reordered() && !syncs.empty())
      for (std::int64_t i = sync + 1; i < std::min(next, slice.hi + 1); ++i)
        keep = keep && a.pts[i] >= a.pts[sync] - 1e-9;
    if (keep) syncs.push_back(static_cast<std::uint32_t>(sync - slice.lo + 1));
  }
  const bool has_offsets = std::any_of(offsets.begin(), offsets.end(), [](auto c) { return c; });
  const bool negative = std::any_of(offsets.begin(), offsets.end(), [](auto c) { return c < 0; });

  const auto movie = [&](std::uint32_t base) {
    std::vector<std::uint32_t> sizes{0}, places;
    sizes.clear();
    for (std::int64_t i = slice.lo; i <= slice.hi; ++i) {
      sizes.push_back(static_cast<std::uint32_t>(a.sizes[i]));
      places.push_back(base + static_cast<std::uint32_t>(static_cast<std::uint64_t>(a.offsets[i]) -
                                                         slice.offset));
    }
    Bytes stsz = words({0, 0, n});
    for (const std::uint32_t size : sizes) stsz = join({stsz, words({size})});
    Bytes tables = make_box("stsd", table.video.sample_description);
    tables = join({tables, runs_box("stts", 0, durations)});
    if (has_offsets) tables = join({tables, runs_box("ctts", negative ? 1 : 0, offsets)});
    tables = join({tables, table_box("stsc", 0, {1, 1, 1}, 1), make_box("stsz", stsz)});
    tables = join({tables, table_box("stco", 0, places, n)});
    if (!syncs.empty())
      tables =
          join({tables, table_box("stss", 0, syncs, static_cast<std::uint32_t>(syncs.size()))});
    Bytes mvhd = full(100), tkhd = full(84), mdhd = full(24), hdlr = full(24);
    put32(mvhd, 12, table.video.timescale);
    put32(mvhd, 16, duration);
    put32(tkhd, 0, 7);
    put32(tkhd, 12, 1);
    put32(tkhd, 40, 0x10000);
    put32(tkhd, 56, 0x10000);
    put32(tkhd, 72, 0x40000000);
    put32(mdhd, 12, table.video.timescale);
    put32(mdhd, 16, duration);
    std::copy_n("vide", 4, hdlr.begin() + 8);
    const std::string_view name("VideoHandler\0", 13);
    hdlr.insert(hdlr.end(), name.begin(), name.end());
    const Bytes dinf =
        make_box("dinf", make_box("dref", join({words({0, 1}), make_box("url ", words({1}))})));
    const Bytes minf =
        make_box("minf", join({make_box("vmhd", full(12)), dinf, make_box("stbl", tables)}));
    const Bytes mdia =
        make_box("mdia", join({make_box("mdhd", mdhd), make_box("hdlr", hdlr), minf}));
    Bytes edits;
    if (offsets[0] != 0)
      edits = make_box(
          "edts",
          make_box("elst", words({1U << 24, 1, 0, duration, offsets[0] < 0 ? 0xffffffffU : 0U,
                                  static_cast<std::uint32_t>(offsets[0]), 0x10000})));
    return make_box("moov", join({make_box("mvhd", mvhd),
                                  make_box("trak", join({make_box("tkhd", tkhd), edits, mdia}))}));
  };
  const auto head =
      static_cast<std::uint32_t>(table.video.file_type_box.size() + movie(0).size() + 8);
  return join({table.video.file_type_box, movie(head), make_box("mdat", payload)});
}

// ---- Random tables
// ---------------------------------------------------------------------------------

Table random_table(std::mt19937& random) {
  const auto number = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Table table;
  table.video.path = "random.mp4";
  table.video.timescale = number(0, 1) ? 10240U : 30000U;
  table.video.file_type_box.resize(28);
  table.video.sample_description.resize(static_cast<std::size_t>(number(16, 200)));
  const int count = number(1, 200);
  const int kind = number(0, 3);  // 0: no reordering, 1: closed, 2: open groups, 3: constant
  const int group = number(1, 12);
  const bool constant = number(0, 1) != 0;
  const std::int64_t frame = table.video.timescale / static_cast<unsigned>(number(5, 30));
  const double edit = kind == 0 && number(0, 1) ? 0.5 : 0.0;
  SidecarArrays& a = table.arrays;
  std::int64_t time = 0, offset = 48;
  for (int i = 0; i < count; ++i) {
    a.durations.push_back(constant ? frame : frame + number(-10, 10));
    std::int64_t composition = 0;
    const int place = i % group;
    if (kind == 1) composition = place == 0 ? frame : frame * (place % 3);
    if (kind == 2) composition = place == 0 ? 3 * frame : place < 3 ? 0 : frame * (1 + place % 2);
    if (kind == 3) composition = 2 * frame;
    a.composition_offsets.push_back(composition);
    if (place == 0) a.sync_samples.push_back(i);
    a.pts.push_back(static_cast<double>(time + composition) / table.video.timescale + edit);
    a.sizes.push_back(number(1, 300));
    a.offsets.push_back(offset);
    offset += a.sizes.back() + (number(0, 3) ? 0 : number(0, 50));
    time += a.durations.back();
  }
  if (number(0, 3) == 0 && count > 3) std::swap(a.offsets[1], a.offsets[2]);
  if (number(0, 3) == 0 && group > 1) a.sync_samples.erase(a.sync_samples.begin());
  if (a.sync_samples.empty()) a.sync_samples.push_back(0);
  table.video.size = static_cast<std::uint64_t>(offset) + 400;
  return table;
}

TEST(EpisodeSliceTest, SlicesAreThoseOfTheRulesOnRandomTables) {
  std::mt19937 random(20261130);
  for (int round = 0; round < 3000; ++round) {
    const Table table = random_table(random);
    const TrackSamples samples = table.arrays.view(table.video);
    const double end = table.arrays.pts.back() + 1.0;
    for (int k = 0; k < 8; ++k) {
      double from = std::uniform_real_distribution<double>(-0.2, end)(random);
      double to = from + std::uniform_real_distribution<double>(0.0, end)(random);
      if (k % 2 == 0) {  // on frames, as datasets have them
        from = table.arrays.pts[random() % table.size()];
        to = std::max(from, table.arrays.pts[random() % table.size()]);
      }
      const Slice expected = slow_slice(table, from, to);
      const EpisodeSlice found = slice_of(samples, from, to, "random.mp4");
      ASSERT_EQ(found.first_sample, static_cast<std::size_t>(expected.lo)) << round;
      ASSERT_EQ(found.last_sample, static_cast<std::size_t>(expected.hi)) << round;
      ASSERT_EQ(found.byte_offset, expected.offset);
      ASSERT_EQ(found.byte_length, expected.length);
      if (round % 5 != 0) continue;
      const Bytes file = synthesize(table, expected, Bytes(expected.length));
      ASSERT_EQ(found.reserved_bytes, file.size()) << round;
      ASSERT_LE(found.reserved_bytes,
                synthesized_bytes_bound(table.size(), table.video.size, 28,
                                        table.video.sample_description.size()));
    }
  }
}

TEST(EpisodeSliceTest, TheSizeOfTheDocumentedExample) {
  // ftyp 28, sample description 24, three samples of one duration, one sync sample, 60 bytes: 633.
  Table table;
  table.video.timescale = 10;
  table.video.size = 1000;
  table.video.file_type_box.resize(28);
  table.video.sample_description.resize(24);
  table.arrays = {{0.0, 0.1, 0.2}, {1, 1, 1}, {0, 0, 0}, {20, 20, 20}, {100, 120, 140}, {0}, {}};
  const TrackSamples samples = table.arrays.view(table.video);
  EXPECT_EQ(synthesized_bytes(samples, 0, 2, 100, 60), 633U);
  EXPECT_EQ(synthesize(table, {0, 2, 100, 60}, Bytes(60)).size(), 633U);
}

TEST(EpisodeSliceTest, WideOffsetsAndBoxesAreCounted) {
  // By hand: two samples 5 GiB apart; 'co64' instead of 'stco' adds 8 bytes, the wide 'mdat' 8.
  Table table;
  table.video.timescale = 10;
  table.video.file_type_box.resize(28);
  table.video.sample_description.resize(24);
  const std::int64_t far = std::int64_t{5} << 30;
  table.video.size = static_cast<std::uint64_t>(far) + 120;
  table.arrays = {{0.0, 0.1}, {1, 1}, {0, 0}, {20, 20}, {100, far + 100}, {0}, {}};
  const TrackSamples samples = table.arrays.view(table.video);
  const std::uint64_t payload = static_cast<std::uint64_t>(far) + 20;
  // 633 is 60 of payload and three samples of 8 bytes in two tables.
  EXPECT_EQ(synthesized_bytes(samples, 0, 1, 100, payload), 633 - 60 - 8 + payload + 8 + 8);
}

TEST(EpisodeSliceTest, WhatIsNoRangeIsRefused) {
  std::mt19937 random(1);
  const Table table = random_table(random);
  const TrackSamples samples = table.arrays.view(table.video);
  EXPECT_THAT(error_of([&] { slice_of(samples, 2.0, 1.0, "a.mp4"); }),
              ::testing::HasSubstr("a.mp4: an episode from 2 s to 1 s is no range"));
  EXPECT_THROW(slice_of(samples, NAN, 1.0, "a.mp4"), Error);
  EXPECT_THROW(slice_of(TrackSamples{}, 0.0, 1.0, "a.mp4"), Error);
}

class SynthesizedTest : public video::VideoTest {};

TEST_F(SynthesizedTest, TheSizeIsThatOfAFileThatPlays) {
  for (const char* options : {"-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3",
                              "-c:v libx264 -pix_fmt yuv420p -g 12 -bf 3 -x264opts open_gop=1",
                              "-c:v libx264 -pix_fmt yuv420p -g 5 -bf 0"}) {
    const fs::path path = make_video(options, "96x64", "25", 4.0);
    const Bytes bytes = video::read_bytes(path);
    video::SpanReader reader(bytes, path.string());
    const auto index = video::Mp4Index::parse(reader, video::Mp4Use::kIndex);
    const Table table{sidecar_video(index, "a.mp4", bytes.size()), sidecar_arrays(index)};
    const TrackSamples samples = table.arrays.view(table.video);
    for (const auto& [from, to] : {std::pair{0.0, 1.0}, {1.2, 2.4}, {2.0, 4.0}, {3.9, 4.0}}) {
      const EpisodeSlice slice = slice_of(samples, from, to, "a.mp4");
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(slice.byte_offset);
      const Bytes file = synthesize(
          table,
          {static_cast<std::int64_t>(slice.first_sample),
           static_cast<std::int64_t>(slice.last_sample), slice.byte_offset, slice.byte_length},
          Bytes(begin, begin + static_cast<std::ptrdiff_t>(slice.byte_length)));
      EXPECT_EQ(slice.reserved_bytes, file.size()) << options;
      video::MemorySource source(file);
      EXPECT_EQ(source.index().samples.size(), slice.last_sample - slice.first_sample + 1);
      const fs::path cut = folder_ / "cut.mp4";
      video::write_bytes(cut, file);
      EXPECT_EQ(
          std::system(fmt::format("ffprobe -v error {} >/dev/null 2>&1", cut.string()).c_str()), 0);
    }
  }
}

}  // namespace
}  // namespace lerobot::streaming
