#include "lerobot/streaming/streaming_state.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "tests/support/error_of.h"

namespace lerobot::streaming {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

EpisodeList some_episodes(std::mt19937_64& random, std::size_t at_least) {
  const std::size_t count = at_least + random() % 20;
  EpisodeList list{std::vector<std::int64_t>(count), std::vector<std::int32_t>(count)};
  std::iota(list.episodes.begin(), list.episodes.end(), 0);
  for (auto& frames : list.frames) frames = static_cast<std::int32_t>(1 + random() % 15);
  return list;
}

StreamingSetup setup_of(std::int64_t world, std::int64_t workers, std::int64_t batch,
                        SampleOrder order = SampleOrder::kWorker) {
  return {order,
          world,
          workers,
          batch,
          {1000, SamplingStrategy::kRemaining, std::nullopt, std::uint64_t{1} << 30}};
}

/// All processes of a run, each with the pools of the lanes that it has a part of.
class StreamRun {
 public:
  StreamRun(const StreamingState& state, VirtualTopology topology, const EpisodeList& selected,
            std::int64_t step, std::int64_t processes)
      : topology_(std::move(topology)), step_(step), processes_(processes) {
    const auto shards = rank_shards(selected, state.dp_world_size);
    for (std::int64_t process = 0; process < processes; ++process) {
      const auto range = topology_.ranks_of(process, processes);
      for (std::int64_t rank = range.first; rank <= range.last; ++rank) {
        const auto progress = topology_.progress(rank, step);
        const auto lanes = lane_shards(shards[static_cast<std::size_t>(rank)], state.num_workers);
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
          CoveragePool pool(
              lanes[lane].episodes, lanes[lane].frames,
              [](std::int64_t) { return std::uint64_t{1}; },
              lane_options(state.settings, topology_.lanes(rank)));
          pool.skip(progress.samples[lane]);
          pools_.emplace(std::array{process, rank, static_cast<std::int64_t>(lane)},
                         std::move(pool));
        }
      }
    }
  }

  /// The global batch of the next step.
  std::vector<Anchor> next() {
    std::vector<Anchor> batch;
    for (std::int64_t process = 0; process < processes_; ++process)
      for (const BatchPart& part : topology_.parts(step_, process, processes_)) {
        auto& pool = pools_.at({process, part.rank, part.lane});
        for (std::int64_t row = 0; row < topology_.batch_size(); ++row) {
          const Anchor anchor = pool.next();
          if (row >= part.first_row && row < part.first_row + part.rows) batch.push_back(anchor);
        }
      }
    ++step_;
    return batch;
  }

 private:
  VirtualTopology topology_;
  std::int64_t step_;
  std::int64_t processes_;
  std::map<std::array<std::int64_t, 3>, CoveragePool> pools_;
};

StreamRun fresh_run(const StreamingSetup& setup, const EpisodeList& selected) {
  const auto state = initial_state(setup, selected);
  return {state, topology_of(state, selected), selected, 0, setup.dp_world_size};
}

StreamRun resumed_run(const StreamingState& recorded, std::int64_t steps,
                      const StreamingSetup& setup, const EpisodeList& selected) {
  const auto resumed = resume_stream(recorded, steps, setup, selected);
  return {resumed.state, resumed.topology, selected, steps, setup.dp_world_size};
}

// --- Exact resumes ------------------------------------------------------------------------------

TEST(StreamingState, AResumeWithTheSameGlobalBatchSeesTheSameSamplesOnAnyNumberOfRanks) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const auto world = static_cast<std::int64_t>(1 + random() % 4);
    const auto workers = static_cast<std::int64_t>(random() % 4);
    const auto batch = static_cast<std::int64_t>(1 + random() % 12);
    const auto order = random() % 3 == 0 ? SampleOrder::kGlobal : SampleOrder::kWorker;
    const EpisodeList selected = some_episodes(random, 4);
    const StreamingSetup setup = setup_of(world, workers, batch, order);
    StreamRun whole = fresh_run(setup, selected);
    const auto steps = static_cast<std::int64_t>(random() % 40);
    for (std::int64_t i = 0; i < steps; ++i) whole.next();
    std::vector<std::vector<Anchor>> expected;
    for (int i = 0; i < 4; ++i) expected.push_back(whole.next());
    const StreamingState recorded = initial_state(setup, selected);
    for (std::int64_t processes = 1; processes <= 8; ++processes) {
      if (world * batch % processes != 0) continue;
      // --num_workers may be another, too. At step 0 there is nothing to go on from.
      const auto other =
          setup_of(processes, steps == 0 ? workers : 2, world * batch / processes, order);
      if (steps == 0 && order == SampleOrder::kWorker && processes != world) continue;
      const auto resumed = resume_stream(recorded, steps, other, selected);
      ASSERT_TRUE(resumed.exact) << resumed.explanation;
      ASSERT_EQ(resumed.state, recorded);
      StreamRun run = resumed_run(recorded, steps, other, selected);
      for (const auto& global_batch : expected) ASSERT_EQ(run.next(), global_batch);
    }
  }
}

TEST(StreamingState, AResumeWithTheSameSettingsSaysNothing) {
  std::mt19937_64 random(2);
  const EpisodeList selected = some_episodes(random, 12);
  const auto recorded = initial_state(setup_of(3, 2, 4), selected);
  const auto resumed = resume_stream(recorded, 1'000'000, setup_of(3, 2, 4), selected);
  EXPECT_TRUE(resumed.exact);
  EXPECT_EQ(resumed.explanation, "");
  const auto elastic = resume_stream(recorded, 1'000'000, setup_of(2, 5, 6), selected);
  EXPECT_TRUE(elastic.exact);
  EXPECT_EQ(elastic.explanation,
            "the samples keep the order of the checkpoint's 3 ranks with 2 workers each, now on 2 "
            "ranks");
}

TEST(StreamingState, GlobalOrderDoesNotDependOnTheNumberOfRanks) {
  std::mt19937_64 random(3);
  const EpisodeList selected = some_episodes(random, 8);
  StreamRun one = fresh_run(setup_of(1, 2, 12, SampleOrder::kGlobal), selected);
  StreamRun three = fresh_run(setup_of(3, 2, 4, SampleOrder::kGlobal), selected);
  for (int step = 0; step < 50; ++step) ASSERT_EQ(one.next(), three.next());
}

// --- Inexact resumes ----------------------------------------------------------------------------

TEST(StreamingState, AnotherBatchSizeLosesAndRepeatsNoSampleAndGoesOnExactlyFromThere) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 200; ++round) {
    const auto world = static_cast<std::int64_t>(1 + random() % 3);
    const auto workers = static_cast<std::int64_t>(1 + random() % 3);
    const auto before = setup_of(world, workers, 1 + static_cast<std::int64_t>(random() % 6));
    const auto after = setup_of(world, workers, before.batch_size + 1);
    const EpisodeList selected = some_episodes(random, 3);
    const auto steps = static_cast<std::int64_t>(1 + random() % 30);
    std::map<std::array<std::int64_t, 3>, int> seen;  // by epoch, episode, frame
    const auto see = [&](const std::vector<Anchor>& batch) {
      for (const Anchor& a : batch) ++seen[{a.epoch, a.episode, a.frame}];
    };
    StreamRun first = fresh_run(before, selected);
    for (std::int64_t i = 0; i < steps; ++i) see(first.next());
    const auto recorded = initial_state(before, selected);
    const auto resumed = resume_stream(recorded, steps, after, selected);
    ASSERT_FALSE(resumed.exact);
    ASSERT_THAT(resumed.explanation, HasSubstr("no sample is lost or seen twice"));
    StreamRun second = resumed_run(recorded, steps, after, selected);
    std::vector<std::vector<Anchor>> batches;
    for (int i = 0; i < 60; ++i) see(batches.emplace_back(second.next()));
    // Every epoch that a worker finished is complete: its last frames came, so all did, once.
    for (const auto& [key, times] : seen) ASSERT_EQ(times, 1);
    const std::int64_t total = (steps * before.batch_size + 60 * after.batch_size) * world;
    ASSERT_EQ(static_cast<std::int64_t>(seen.size()), total);
    for (const EpisodeList& rank : rank_shards(selected, world))
      for (const EpisodeList& lane : lane_shards(rank, workers)) {
        std::int64_t last_epoch = 0;
        std::map<std::int64_t, std::int64_t> frames_by_epoch;
        for (const auto& [key, times] : seen)
          if (std::ranges::binary_search(lane.episodes, key[1])) {
            last_epoch = std::max(last_epoch, key[0]);
            ++frames_by_epoch[key[0]];
          }
        for (std::int64_t epoch = 0; epoch < last_epoch; ++epoch)
          ASSERT_EQ(frames_by_epoch[epoch], lane.total_frames());
      }
    // A checkpoint of the resumed run knows where the lanes stood: its own resume is exact.
    const auto parsed = parse_streaming_state(to_json(resumed.state).dump(), "state");
    const auto again = resume_stream(parsed, steps + 7, after, selected);
    ASSERT_TRUE(again.exact) << again.explanation;
    StreamRun third(again.state, again.topology, selected, steps + 7, world);
    for (std::size_t i = 7; i < 12; ++i) ASSERT_EQ(third.next(), batches[i]);
  }
}

TEST(StreamingState, AnotherTopologyGoesOnAtTheRightEpochAndOffset) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    const EpisodeList selected = some_episodes(random, 8);
    const auto setup = [&] {
      return setup_of(static_cast<std::int64_t>(1 + random() % 4),
                      static_cast<std::int64_t>(1 + random() % 4),
                      static_cast<std::int64_t>(1 + random() % 8));
    };
    const auto before = setup(), after = setup();
    if (before.dp_world_size * before.batch_size == after.dp_world_size * after.batch_size ||
        (before.dp_world_size == after.dp_world_size && before.num_workers == after.num_workers))
      continue;
    const auto steps = static_cast<std::int64_t>(1 + random() % 1000);
    const auto resumed = resume_stream(initial_state(before, selected), steps, after, selected);
    ASSERT_FALSE(resumed.exact);
    ASSERT_THAT(resumed.explanation, HasSubstr("right epoch and offset"));
    ASSERT_EQ(resumed.topology.first_step(), steps);
    ASSERT_EQ(resumed.topology.global_batch(), after.dp_world_size * after.batch_size);
    const std::int64_t done = steps * before.dp_world_size * before.batch_size;
    for (const LaneProgress& rank : resumed.topology.progress(steps)) {
      ASSERT_EQ(std::accumulate(rank.samples.begin(), rank.samples.end(), std::int64_t{0}),
                done / after.dp_world_size);
      const auto [least, most] = std::ranges::minmax(rank.samples);
      ASSERT_LE(most - least, after.batch_size);
    }
    ASSERT_LE(done - samples_before(resumed.state, steps), after.dp_world_size - 1);
  }
}

TEST(StreamingState, AnInexactResumeSaysWhatIsDifferent) {
  EpisodeList selected{{0, 1, 2, 3}, {10, 20, 30, 40}};
  const auto base = setup_of(2, 1, 4);
  const auto recorded = initial_state(base, selected);
  const auto explanation = [&](const StreamingSetup& setup) {
    const auto resumed = resume_stream(recorded, 3, setup, selected);
    EXPECT_FALSE(resumed.exact);
    return resumed.explanation;
  };
  EXPECT_THAT(explanation(setup_of(1, 2, 3)),
              HasSubstr("the global batch was 2 x 4 samples (ranks x batch size) with 1 workers a "
                        "rank and is 1 x 3 with 2: training goes on at the right epoch and offset "
                        "(24 samples)"));
  EXPECT_THAT(explanation(setup_of(2, 1, 4, SampleOrder::kGlobal)),
              HasSubstr("--dataset.streaming_order was worker and is global"));
  auto setup = base;
  setup.settings.seed = 7;
  EXPECT_THAT(explanation(setup), HasSubstr("--seed was 1000 and is 7"));
  setup = base;
  setup.settings.strategy = SamplingStrategy::kRoundRobin;
  EXPECT_THAT(explanation(setup), HasSubstr("was remaining and is round_robin"));
  setup = base;
  setup.settings.episode_pool_size = 5;
  EXPECT_THAT(explanation(setup), HasSubstr("pool_size was unset and is 5"));
  setup = base;
  setup.settings.byte_budget = 99;
  EXPECT_THAT(explanation(setup), HasSubstr("where it limits the pool"));
  selected.frames[3] = 41;
  EXPECT_THAT(explanation(base), HasSubstr("4 episodes with 100 frames and is 4 with 101"));
}

TEST(StreamingState, BadSetupsAndStepsAreRefused) {
  const EpisodeList selected{{0, 1}, {10, 20}};
  const auto start = [&](const StreamingSetup& setup) {
    return error_of([&] { topology_of(initial_state(setup, selected), selected); });
  };
  EXPECT_EQ(start(setup_of(2, 0, 1)), "no error");
  EXPECT_THAT(start(setup_of(3, 1, 1)), HasSubstr("reduce the data-parallel world size"));
  EXPECT_THAT(start(setup_of(0, 1, 1)), HasSubstr("dp_world_size must be 1 to"));
  EXPECT_THAT(start(setup_of(1, -1, 1)), HasSubstr("num_workers must be 0 to"));
  EXPECT_THAT(start(setup_of(1, 1, 0)), HasSubstr("batch_size must be 1 to"));
  const auto recorded = initial_state(setup_of(1, 1, 4), selected);
  EXPECT_THAT(error_of([&] { resume_stream(recorded, -1, setup_of(1, 1, 4), selected); }),
              HasSubstr("step -1 lies before the first step"));
  EXPECT_THAT(error_of([&] {
                resume_stream(recorded, std::int64_t{1} << 62, setup_of(1, 1, 4), selected);
              }),
              HasSubstr("overflows"));
  EXPECT_THAT(error_of([] { sample_order("rank"); }),
              HasSubstr("must be \"worker\" or \"global\", found \"rank\""));
  EXPECT_THAT(error_of([] { sampling_strategy("all"); }), HasSubstr("\"round_robin\""));
  auto other = recorded;
  other.origin = StreamingState::Origin{5, {{{1, 2}, 0}}};
  other.num_workers = 2;
  EXPECT_EQ(error_of([&] { topology_of(other, selected); }), "no error");
  EXPECT_THAT(error_of([&] {
                topology_of(other, {{0}, {30}});
              }),
              HasSubstr("not those of the selected episodes"));
}

// --- The file -----------------------------------------------------------------------------------

TEST(StreamingState, TheFileComesBackAsItWasWritten) {
  const EpisodeList selected{{0, 1, 2, 3}, {10, 20, 30, 40}};
  auto setup = setup_of(2, 2, 4, SampleOrder::kGlobal);
  setup.settings = {~std::uint64_t{0}, SamplingStrategy::kRoundRobin, 5, ~std::uint64_t{0}};
  auto state = initial_state(setup, selected);
  EXPECT_EQ(parse_streaming_state(to_json(state).dump(), "x"), state);
  state.origin = StreamingState::Origin{123456789012, {{{17, 9}, 1}}};
  const std::string path =
      testing::TempDir() + "streaming_state_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << to_python_json(to_json(state), 4);
  EXPECT_EQ(read_streaming_state(path), state);
  std::ofstream(path) << "{";
  EXPECT_THAT(error_of([&] { read_streaming_state(path); }), HasSubstr(path));
  unlink(path.c_str());
  EXPECT_EQ(to_python_json(to_json(initial_state(setup_of(2, 0, 4), selected)), -1),
            R"({"order": "worker", "dp_world_size": 2, "num_workers": 1, "batch_size": 4, )"
            R"("seed": 1000, "sampling_strategy": "remaining", "episode_pool_size": null, )"
            R"("byte_budget": 1073741824, "num_episodes": 4, "num_frames": 100})");
}

TEST(StreamingState, EveryDamagedFieldIsNamed) {
  const EpisodeList selected{{0, 1, 2, 3}, {10, 20, 30, 40}};
  auto state = initial_state(setup_of(2, 2, 4), selected);
  state.origin = StreamingState::Origin{5, {{{1, 2}, 0}, {{1, 2}, 1}}};
  const Json good = to_json(state);
  const auto read = [](const Json& json) {
    return error_of([&] { parse_streaming_state(json.dump(), "checkpoint/state.json"); });
  };
  EXPECT_EQ(read(good), "no error");
  for (const auto& [key, value] : good.items()) {
    Json json = good;
    if (key != "origin") {
      json.erase(key);
      EXPECT_THAT(read(json), AllOf(HasSubstr("checkpoint/state.json"), HasSubstr(key),
                                    HasSubstr("is missing")));
    }
    for (const char* bad : {"-1", "1.5", "\"x\"", "true", "1e30", "{}"}) {
      json[key] = Json::parse(bad);
      EXPECT_THAT(read(json), HasSubstr(key == "origin" && std::string(bad) == "{}" ? "step" : key))
          << key << " = " << bad;
    }
  }
  for (const char* key :
       {"dp_world_size", "num_workers", "batch_size", "byte_budget", "episode_pool_size"}) {
    Json json = good;
    json[key] = 0;
    EXPECT_THAT(read(json), HasSubstr(key));
    json[key] = std::int64_t{1} << 62;
    if (std::string(key) != "byte_budget" && std::string(key) != "episode_pool_size") {
      EXPECT_THAT(read(json), HasSubstr(key));
    }
  }
  const auto with = [&](const char* pointer, Json value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = std::move(value);
    return read(json);
  };
  EXPECT_THAT(with("/origin/ranks/0/turn", 2), HasSubstr("must be below 2, found 2"));
  EXPECT_THAT(with("/origin/ranks/0/samples", Json::array()), HasSubstr("origin.ranks.samples"));
  EXPECT_THAT(with("/origin/ranks/0/samples/1", -3), HasSubstr("samples is -3"));
  EXPECT_THAT(with("/origin/ranks/0", 7), HasSubstr("entry of origin.ranks"));
  EXPECT_THAT(with("/origin/ranks", Json::array()), HasSubstr("each of 2 ranks, found 0"));
  EXPECT_THAT(with("/order", "rank"), HasSubstr("\"worker\" or \"global\", found \"rank\""));
  EXPECT_THAT(read(Json::array()), HasSubstr("expected a JSON object"));
}

}  // namespace
}  // namespace lerobot::streaming
