// What a checkpoint records about a stream, and where a resumed run goes on.
//
// The order of samples is a pure function of a few settings; a position is the number of steps.
// Both together are the checkpoint's streaming_state.json. A run that was resumed with another
// global batch has no position that follows from the steps alone: its state carries where its lanes
// stood then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/streaming/coverage_pool.h"
#include "lerobot/streaming/episode_shards.h"
#include "lerobot/streaming/virtual_topology.h"

namespace lerobot::streaming {

/// In a checkpoint's training_state/.
inline constexpr const char* kStreamingStateFile = "streaming_state.json";

/// --dataset.streaming_order.
enum class SampleOrder {
  kWorker,  ///< every data-parallel rank has its own episodes and lanes, as LeRobot does
  kGlobal,  ///< one virtual rank delivers the global batch: no process count changes the order
};

/// The option's spelling, and its meaning. Parsing throws Error naming the values that there are.
std::string_view name_of(SampleOrder order);
std::string_view name_of(SamplingStrategy strategy);
SampleOrder sample_order(std::string_view name);
SamplingStrategy sampling_strategy(std::string_view name);

/// What decides which sample comes when, besides the topology.
struct OrderSettings {
  std::uint64_t seed = 1000;
  SamplingStrategy strategy = SamplingStrategy::kRemaining;
  /// --dataset.streaming_episode_pool_size: of a lane; unset, lane_pool_size() decides.
  std::optional<std::int64_t> episode_pool_size;
  std::uint64_t byte_budget = 0;  ///< of a virtual rank; its lanes share it

  bool operator==(const OrderSettings&) const = default;
};

/// What a run asks for.
struct StreamingSetup {
  SampleOrder order = SampleOrder::kWorker;
  std::int64_t dp_world_size = 1;  ///< data-parallel processes
  std::int64_t num_workers = 4;    ///< 0 means one lane, too
  std::int64_t batch_size = 8;     ///< of a process
  OrderSettings settings;
};

/// What a checkpoint records.
struct StreamingState {
  SampleOrder order = SampleOrder::kWorker;
  std::int64_t dp_world_size = 1;  ///< virtual ranks
  std::int64_t num_workers = 1;    ///< lanes of each, unless it owns fewer episodes
  std::int64_t batch_size = 8;     ///< of a virtual rank
  OrderSettings settings;
  /// Of the selected episodes that have frames. Tell a resumed run whether the data is the same.
  std::int64_t num_episodes = 0;
  std::int64_t num_frames = 0;
  /// Where the lanes stood at a step at which the topology changed; unset: 0 at step 0.
  struct Origin {
    std::int64_t step = 0;
    std::vector<LaneProgress> ranks;
    bool operator==(const Origin&) const = default;
  };
  std::optional<Origin> origin;

  bool operator==(const StreamingState&) const = default;
};

/// The state of a run that starts with `setup` on the selected episodes. Throws Error when a number
/// is out of range.
StreamingState initial_state(const StreamingSetup& setup, const EpisodeList& selected);

/// The state's topology on the selected episodes. Throws Error when a rank would own no episode, or
/// when the state's lanes are not those of the selection.
VirtualTopology topology_of(const StreamingState& state, const EpisodeList& selected);

/// The pool of one lane of a virtual rank with `lanes` lanes.
CoveragePoolOptions lane_options(const OrderSettings& settings, std::int64_t lanes);

/// Samples that all virtual ranks together have delivered before step `step`.
std::int64_t samples_before(const StreamingState& state, std::int64_t step);

struct ResumedStream {
  StreamingState state;      ///< what the resumed run follows and records
  VirtualTopology topology;  ///< topology_of(state, selected)
  /// Every step from here on sees the samples that the interrupted run would have seen.
  bool exact = true;
  /// For the log: what goes on differently and why. A warning unless exact; may be empty if so.
  std::string explanation;
};

/// Where a run goes on after `steps` steps of the loop of the recorded one:
/// - Same global batch: in the recorded topology, whatever the processes or --num_workers. Exact,
///   if the other settings and the data are the same.
/// - Same virtual ranks and workers, another batch size: every lane goes on where it stands, so
///   that no sample is lost or seen twice; only the batches are cut differently. Not exact.
/// - Anything else: a new topology; the samples done so far are divided among its lanes. It is the
///   right epoch and offset; within the epoch under way some samples come twice and some not at
///   all.
/// Throws Error when a number is out of range or a rank would own no episode.
ResumedStream resume_stream(const StreamingState& recorded, std::int64_t steps,
                            const StreamingSetup& current, const EpisodeList& selected);

// --- The file -----------------------------------------------------------------------------------

Json to_json(const StreamingState& state);
/// Throws Error naming the file, the field, what was expected and found.
StreamingState read_streaming_state(const std::filesystem::path& path);
/// The same from text; `name` stands for the file in messages.
StreamingState parse_streaming_state(std::string_view text, std::string_view name);

}  // namespace lerobot::streaming
