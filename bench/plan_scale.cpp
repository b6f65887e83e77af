// What planning a stream costs by the size of its dataset: reading the metadata, starting, and
// resuming deep in a run. Nothing is fetched or decoded: the videos' index is made up, every frame
// of it has the same size, and there is no payload behind it.
//   plan_scale ROOT LANES BATCH STEPS
// ROOT holds the metadata; one rank of LANES lanes with the default pool. Prints one JSON line, in
// seconds and in bytes an episode: open_* the metadata and the list of videos; start_* until every
// lane is planned from the start; resume_* the same from step STEPS on, and resume_mid_* from the
// middle of the first epoch; peak_bytes_* the most memory at any time.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <malloc.h>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/process.h"
#include "lerobot/dataset/batch_layout.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/streaming/episode_reader.h"
#include "lerobot/streaming/payload.h"
#include "lerobot/streaming/sidecar_cache.h"
#include "lerobot/streaming/stream_planner.h"
#include "lerobot/streaming/stream_source.h"
#include "lerobot/streaming/streaming_state.h"
#include "lerobot/streaming/video_index.h"

namespace {

using namespace lerobot::streaming;
using lerobot::dataset::DatasetMetadata;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBytesPerFrame = 17'000;
constexpr std::int64_t kActions = 100;
constexpr double kToleranceS = 1e-4;

/// Files of 200 MB with frames of one size: slices cost a multiplication.
class MadeUpIndex final : public VideoIndex {
 public:
  MadeUpIndex(std::vector<std::string> paths, double fps) : paths_(std::move(paths)), fps_(fps) {}

  std::size_t file(std::string_view path) const override {
    const auto found = std::lower_bound(paths_.begin(), paths_.end(), path);
    if (found == paths_.end() || *found != path) lerobot::fail("plan_scale: no video {}", path);
    return static_cast<std::size_t>(found - paths_.begin());
  }
  std::string_view path(std::size_t file) const override { return paths_[file]; }
  std::uint64_t file_bytes(std::size_t) const override { return std::uint64_t{200} << 20; }
  std::uint64_t reserved_bytes_bound(std::size_t file) const override { return file_bytes(file); }
  EpisodeSlice slice(std::size_t file, double from_s, double to_s) const override {
    EpisodeSlice slice;
    slice.file = file;
    slice.first_sample = static_cast<std::size_t>(std::llround(from_s * fps_));
    slice.last_sample = static_cast<std::size_t>(std::llround(to_s * fps_));
    slice.byte_offset = slice.first_sample * kBytesPerFrame;
    slice.byte_length = (slice.last_sample - slice.first_sample + 1) * kBytesPerFrame;
    slice.reserved_bytes = slice.byte_length;
    return slice;
  }
  lerobot::video::Mp4Index samples(std::size_t, std::size_t, std::size_t) const override {
    lerobot::fail("plan_scale: planning needs no samples");
  }

 private:
  const std::vector<std::string> paths_;
  const double fps_;
};

class NoPayload final : public Payload {
 public:
  std::string describe(std::string_view path) const override { return std::string(path); }
  std::uint64_t size(const std::string&) override { refuse(); }
  std::optional<std::string> fingerprint(const std::string&) override { refuse(); }
  void read(std::span<const ByteRange>) override { refuse(); }
  void cancel() override {}
  std::uint64_t bytes_read() const override { return 0; }

 private:
  [[noreturn]] static void refuse() { lerobot::fail("plan_scale: planning needs no payload"); }
};

StreamSource open_source(const std::filesystem::path& root) {
  StreamSource source;
  const auto metadata = DatasetMetadata::open(root, "bench/planned");
  lerobot::config::DeltaIndices windows;
  windows.action.resize(kActions);
  std::iota(windows.action.begin(), windows.action.end(), std::int64_t{0});
  source.metadata = metadata;
  source.layout =
      std::make_shared<const lerobot::dataset::BatchLayout>(metadata, windows, kToleranceS);
  source.payload = std::make_shared<NoPayload>();
  source.reader = std::make_shared<EpisodeReader>(
      metadata, std::make_shared<MadeUpIndex>(video_paths(*metadata), metadata->info().fps),
      source.payload, kToleranceS);
  source.episodes.resize(static_cast<std::size_t>(metadata->episodes().size()));
  std::iota(source.episodes.begin(), source.episodes.end(), std::int64_t{0});
  return source;
}

std::uint64_t heap_bytes() {
  const auto heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

struct Cost {
  double seconds = 0;
  double bytes = 0;  // still held afterwards
};

/// What making something costs; it is kept in `result`.
template <class Make, class Result>
Cost cost_of(Make&& make, Result& result) {
  const std::uint64_t before = heap_bytes();
  const auto began = Clock::now();
  result = make();
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return {seconds, static_cast<double>(heap_bytes()) - static_cast<double>(before)};
}

void run(const std::filesystem::path& root, std::int64_t lanes, std::int64_t batch,
         std::int64_t steps) {
  const std::uint64_t memory_before = lerobot::process_memory().resident;
  std::optional<StreamSource> source;
  const Cost open = cost_of([&] { return open_source(root); }, source);
  const EpisodeList all = source->episode_list();

  StreamingSetup setup;
  setup.num_workers = lanes;
  setup.batch_size = batch;
  setup.settings.byte_budget = std::uint64_t{8} << 30;
  const StreamingState recorded = initial_state(setup, all);

  const auto cost_from = [&](std::int64_t step) {
    std::unique_ptr<StreamPlanner> planner;
    return cost_of(
        [&] {
          const ResumedStream resumed =
              resume_stream(recorded, step, setup, source->episode_list());
          if (!resumed.exact) lerobot::fail("plan_scale: not exact: {}", resumed.explanation);
          return std::make_unique<StreamPlanner>(
              *source,
              StreamPlan{
                  .topology = resumed.topology, .step = step, .settings = resumed.state.settings});
        },
        planner);
  };
  const Cost start = cost_from(0);
  const Cost resume = cost_from(steps);
  const Cost resume_mid = cost_from(all.total_frames() / 2 / batch);
  const std::uint64_t peak = lerobot::process_memory().peak_resident - memory_before;

  const auto episodes = static_cast<double>(all.size());
  std::cout << "{\"episodes\": " << all.size() << ", \"frames\": " << all.total_frames();
  for (const auto& [name, cost] :
       {std::pair{"open", open}, {"start", start}, {"resume", resume}, {"resume_mid", resume_mid}})
    std::cout << ", \"" << name << "_s\": " << cost.seconds << ", \"" << name
              << "_bytes\": " << cost.bytes / episodes;
  std::cout << ", \"peak_bytes\": " << static_cast<double>(peak) / episodes << "}\n";
}

std::int64_t parse_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1)
    lerobot::fail("plan_scale: expected a number of at least 1, found {}", text);
  return number;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: plan_scale ROOT LANES BATCH STEPS\n";
    return 2;
  }
  try {
    run(argv[1], parse_number(argv[2]), parse_number(argv[3]), parse_number(argv[4]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
