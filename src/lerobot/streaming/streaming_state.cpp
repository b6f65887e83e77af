#include "lerobot/streaming/streaming_state.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"

namespace lerobot::streaming {
namespace {

constexpr std::array<std::pair<SampleOrder, std::string_view>, 2> kOrders{
    {{SampleOrder::kWorker, "worker"}, {SampleOrder::kGlobal, "global"}}};
constexpr std::array<std::pair<SamplingStrategy, std::string_view>, 2> kStrategies{
    {{SamplingStrategy::kRemaining, "remaining"}, {SamplingStrategy::kRoundRobin, "round_robin"}}};

template <class Value>
std::string_view name_in(const std::array<std::pair<Value, std::string_view>, 2>& names,
                         Value value) {
  return names[0].first == value ? names[0].second : names[1].second;
}

template <class Value>
Value value_in(const std::array<std::pair<Value, std::string_view>, 2>& names,
               std::string_view what, std::string_view name) {
  for (const auto& [value, spelling] : names)
    if (spelling == name) return value;
  fail("{} must be \"{}\" or \"{}\", found \"{}\"", what, names[0].second, names[1].second, name);
}

/// Large enough for any run, small enough that a damaged number allocates nothing of note.
constexpr std::int64_t kMostRanks = 1'000'000;
constexpr std::int64_t kMostSamples = std::int64_t{1} << 31;

void check_range(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    fail("{} must be {} to {}, found {}", what, least, most, value);
}

void check(const StreamingState& state) {
  check_range("dp_world_size", state.dp_world_size, 1, kMostRanks);
  check_range("num_workers", state.num_workers, 1, kMostRanks);
  check_range("batch_size", state.batch_size, 1, kMostSamples);
  if (state.settings.byte_budget < 1) fail("byte_budget must be at least 1, found 0");
  if (const auto pool = state.settings.episode_pool_size; pool && *pool < 1)
    fail("episode_pool_size must be at least 1, found {}", *pool);
  if (!state.origin) return;
  if (std::cmp_not_equal(state.origin->ranks.size(), state.dp_world_size))
    fail("origin.ranks must have an entry for each of {} ranks, found {}", state.dp_world_size,
         state.origin->ranks.size());
  for (const LaneProgress& rank : state.origin->ranks)
    check_range("the number of origin.ranks.samples",
                static_cast<std::int64_t>(rank.samples.size()), 1, state.num_workers);
  VirtualTopology(state.batch_size, state.origin->ranks,
                  state.origin->step);  // It checks the rest.
}

/// Lanes of every virtual rank.
std::vector<std::int64_t> lane_counts(const StreamingState& state, const EpisodeList& selected) {
  std::vector<std::int64_t> counts;
  for (const EpisodeList& shard : rank_shards(selected, state.dp_world_size))
    counts.push_back(lane_count(state.num_workers, shard.size()));
  return counts;
}

bool lanes_are_those_of(const StreamingState::Origin& origin,
                        const std::vector<std::int64_t>& counts) {
  return std::ranges::equal(origin.ranks, counts, {}, [](const LaneProgress& rank) {
    return static_cast<std::int64_t>(rank.samples.size());
  });
}

}  // namespace

std::string_view name_of(SampleOrder order) { return name_in(kOrders, order); }
std::string_view name_of(SamplingStrategy strategy) { return name_in(kStrategies, strategy); }
SampleOrder sample_order(std::string_view name) {
  return value_in(kOrders, "streaming_order", name);
}
SamplingStrategy sampling_strategy(std::string_view name) {
  return value_in(kStrategies, "streaming_sampling_strategy", name);
}

StreamingState initial_state(const StreamingSetup& setup, const EpisodeList& selected) {
  check_range("dp_world_size", setup.dp_world_size, 1, kMostRanks);
  check_range("num_workers", setup.num_workers, 0, kMostRanks);
  check_range("batch_size", setup.batch_size, 1, kMostSamples);
  StreamingState state;
  state.order = setup.order;
  const bool global = setup.order == SampleOrder::kGlobal;
  state.dp_world_size = global ? 1 : setup.dp_world_size;
  state.batch_size = setup.batch_size * (global ? setup.dp_world_size : 1);
  state.num_workers = std::max<std::int64_t>(1, setup.num_workers);
  state.settings = setup.settings;
  state.num_episodes =
      std::ranges::count_if(selected.frames, [](std::int32_t frames) { return frames > 0; });
  state.num_frames = selected.total_frames();
  check(state);
  return state;
}

VirtualTopology topology_of(const StreamingState& state, const EpisodeList& selected) {
  const auto counts = lane_counts(state, selected);
  if (!state.origin) return {state.batch_size, counts};
  if (!lanes_are_those_of(*state.origin, counts))
    fail("the recorded workers of the stream are not those of the selected episodes");
  return {state.batch_size, state.origin->ranks, state.origin->step};
}

CoveragePoolOptions lane_options(const OrderSettings& settings, std::int64_t lanes) {
  return {lane_pool_size(settings.episode_pool_size, lanes),
          lane_byte_budget(settings.byte_budget, lanes), settings.strategy, settings.seed};
}

std::int64_t samples_before(const StreamingState& state, std::int64_t step) {
  constexpr const char* kWhat = "the samples of the stream";
  const std::int64_t first = state.origin ? state.origin->step : 0;
  if (step < first) fail("step {} lies before the first step of the stream, {}", step, first);
  std::int64_t samples =
      checked_mul(checked_mul(step - first, state.batch_size, kWhat), state.dp_world_size, kWhat);
  if (state.origin)
    for (const LaneProgress& rank : state.origin->ranks)
      for (const std::int64_t lane : rank.samples) samples = checked_add(samples, lane, kWhat);
  return samples;
}

// --- Resuming -----------------------------------------------------------------------------------

namespace {

void add_sentence(std::string& text, const std::string& sentence) {
  text += text.empty() ? sentence : "; " + sentence;
}

/// Whether the data is what the recorded lanes were made of.
bool same_data(const StreamingState& recorded, const StreamingState& wanted,
               const EpisodeList& selected) {
  if (recorded.num_episodes != wanted.num_episodes || recorded.num_frames != wanted.num_frames)
    return false;
  if (recorded.dp_world_size > recorded.num_episodes) return false;
  return !recorded.origin || lanes_are_those_of(*recorded.origin, lane_counts(recorded, selected));
}

/// Settings other than the topology that change which sample comes next.
std::string changed_settings(const OrderSettings& before, const OrderSettings& now) {
  const auto pool = [](const std::optional<std::int64_t>& size) {
    return size ? fmt::format("{}", *size) : std::string("unset");
  };
  std::string text;
  if (before.seed != now.seed)
    add_sentence(text, fmt::format("--seed was {} and is {}", before.seed, now.seed));
  if (before.strategy != now.strategy)
    add_sentence(text, fmt::format("--dataset.streaming_sampling_strategy was {} and is {}",
                                   name_of(before.strategy), name_of(now.strategy)));
  if (before.episode_pool_size != now.episode_pool_size)
    add_sentence(text, fmt::format("--dataset.streaming_episode_pool_size was {} and is {}",
                                   pool(before.episode_pool_size), pool(now.episode_pool_size)));
  if (before.byte_budget != now.byte_budget)
    add_sentence(text,
                 fmt::format("the byte budget of a rank was {} and is {} bytes, which changes "
                             "the order where it limits the pool",
                             before.byte_budget, now.byte_budget));
  return text;
}

/// Why the recorded topology is not kept; the ways of saying it are few.
std::string changed_topology(const StreamingState& before, const StreamingState& now,
                             bool same_data) {
  if (!same_data)
    return fmt::format("the data was {} episodes with {} frames and is {} with {}",
                       before.num_episodes, before.num_frames, now.num_episodes, now.num_frames);
  if (before.order != now.order)
    return fmt::format("--dataset.streaming_order was {} and is {}", name_of(before.order),
                       name_of(now.order));
  return fmt::format(
      "the global batch was {} x {} samples (ranks x batch size) with {} workers a "
      "rank and is {} x {} with {}",
      before.dp_world_size, before.batch_size, before.num_workers, now.dp_world_size,
      now.batch_size, now.num_workers);
}

/// The lanes of a new topology, as if it had delivered `samples` from the start.
StreamingState::Origin divided_origin(const StreamingState& state, const EpisodeList& selected,
                                      std::int64_t samples, std::int64_t step) {
  StreamingState::Origin origin{step, {}};
  for (const std::int64_t lanes : lane_counts(state, selected))
    origin.ranks.push_back(divide_samples(samples / state.dp_world_size, lanes, state.batch_size));
  return origin;
}

}  // namespace

ResumedStream resume_stream(const StreamingState& recorded, std::int64_t steps,
                            const StreamingSetup& current, const EpisodeList& selected) {
  StreamingState state = initial_state(current, selected);  // what a fresh run would do
  const std::int64_t samples = samples_before(recorded, steps);
  const bool data = same_data(recorded, state, selected);
  const bool comparable = data && recorded.order == state.order;
  bool exact = true;
  std::string why;
  if (samples == 0 && steps == 0) return {state, topology_of(state, selected), true, ""};
  if (comparable && checked_mul(recorded.batch_size, recorded.dp_world_size, "the global batch") ==
                        current.batch_size * current.dp_world_size) {
    if (state.dp_world_size != recorded.dp_world_size || state.num_workers != recorded.num_workers)
      why = fmt::format(
          "the samples keep the order of the checkpoint's {} ranks with {} workers "
          "each, now on {} ranks",
          recorded.dp_world_size, recorded.num_workers, current.dp_world_size);
    const OrderSettings settings = state.settings;
    state = recorded;
    state.settings = settings;
  } else if (comparable && recorded.dp_world_size == state.dp_world_size &&
             recorded.num_workers == state.num_workers) {
    exact = false;
    why = fmt::format(
        "the batch size was {} and is {}: every worker goes on where it stood, no "
        "sample is lost or seen twice, but the batches differ",
        recorded.batch_size, state.batch_size);
    state.origin = {steps, topology_of(recorded, selected).progress(steps)};
  } else {
    exact = false;
    why = fmt::format(
        "{}: training goes on at the right epoch and offset ({} samples), but in this "
        "epoch some samples come twice and some not at all",
        changed_topology(recorded, state, data), samples);
    state.origin = divided_origin(state, selected, samples, steps);
  }
  if (const auto changed = changed_settings(recorded.settings, state.settings); !changed.empty()) {
    exact = false;
    add_sentence(why, changed + ": the order of the samples differs from the checkpoint's");
  }
  VirtualTopology topology = topology_of(state, selected);
  return {std::move(state), std::move(topology), exact, std::move(why)};
}

// --- The file -----------------------------------------------------------------------------------

Json to_json(const StreamingState& state) {
  Json json = Json::object();
  json["order"] = name_of(state.order);
  json["dp_world_size"] = state.dp_world_size;
  json["num_workers"] = state.num_workers;
  json["batch_size"] = state.batch_size;
  json["seed"] = state.settings.seed;
  json["sampling_strategy"] = name_of(state.settings.strategy);
  const auto pool = state.settings.episode_pool_size;
  json["episode_pool_size"] = pool ? Json(*pool) : Json(nullptr);
  json["byte_budget"] = state.settings.byte_budget;
  json["num_episodes"] = state.num_episodes;
  json["num_frames"] = state.num_frames;
  if (!state.origin) return json;
  Json ranks = Json::array();
  for (const LaneProgress& rank : state.origin->ranks) {
    Json entry = Json::object();
    entry["samples"] = rank.samples;
    entry["turn"] = rank.turn;
    ranks.push_back(std::move(entry));
  }
  json["origin"]["step"] = state.origin->step;
  json["origin"]["ranks"] = std::move(ranks);
  return json;
}

namespace {

const Json& field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) fail("{} is missing", key);
  return *found;
}

template <class Integer>
Integer whole_number(const Json& value, std::string_view key) {
  // The parser makes unsigned numbers of those without a sign; a larger one became a float.
  if (!value.is_number_unsigned() || !std::in_range<Integer>(value.get<std::uint64_t>()))
    fail("{} is {}, expected a whole number of at least 0", key, to_python_json(value, -1));
  return static_cast<Integer>(value.get<std::uint64_t>());
}

std::int64_t count(const Json& object, const char* key) {
  return whole_number<std::int64_t>(field(object, key), key);
}

std::string text(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_string()) fail("{} is {}, expected a text", key, to_python_json(value, -1));
  return value.get<std::string>();
}

const Json& array(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_array()) fail("{} is {}, expected a list", key, to_python_json(value, -1));
  return value;
}

void require_object(const Json& value, const char* what) {
  if (!value.is_object()) fail("{} is {}, expected a JSON object", what, to_python_json(value, -1));
}

StreamingState::Origin origin_from(const Json& json) {
  require_object(json, "origin");
  StreamingState::Origin origin{count(json, "step"), {}};
  for (const Json& rank : array(json, "ranks")) {
    require_object(rank, "an entry of origin.ranks");
    LaneProgress progress;
    for (const Json& samples : array(rank, "samples"))
      progress.samples.push_back(whole_number<std::int64_t>(samples, "samples"));
    progress.turn = count(rank, "turn");
    origin.ranks.push_back(std::move(progress));
  }
  return origin;
}

StreamingState state_from(const Json& json) {
  require_object(json, "the file");
  StreamingState state;
  state.order = value_in(kOrders, "order", text(json, "order"));
  state.dp_world_size = count(json, "dp_world_size");
  state.num_workers = count(json, "num_workers");
  state.batch_size = count(json, "batch_size");
  state.settings.seed = whole_number<std::uint64_t>(field(json, "seed"), "seed");
  state.settings.strategy =
      value_in(kStrategies, "sampling_strategy", text(json, "sampling_strategy"));
  if (!field(json, "episode_pool_size").is_null())
    state.settings.episode_pool_size = count(json, "episode_pool_size");
  state.settings.byte_budget =
      whole_number<std::uint64_t>(field(json, "byte_budget"), "byte_budget");
  state.num_episodes = count(json, "num_episodes");
  state.num_frames = count(json, "num_frames");
  if (const auto origin = json.find("origin"); origin != json.end())
    state.origin = origin_from(*origin);
  check(state);
  return state;
}

StreamingState state_of_file(const Json& json, std::string_view name) {
  try {
    return state_from(json);
  } catch (const Error& error) {
    fail("{}: {}; the checkpoint's streaming state is damaged", name, error.what());
  }
}

}  // namespace

StreamingState parse_streaming_state(std::string_view content, std::string_view name) {
  return state_of_file(parse_json(content, name), name);
}

StreamingState read_streaming_state(const std::filesystem::path& path) {
  return state_of_file(read_json_file(path), path.string());
}

}  // namespace lerobot::streaming
