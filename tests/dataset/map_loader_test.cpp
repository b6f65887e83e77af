#include "lerobot/dataset/map_loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/dataset/episode_selection.h"
#include "lerobot/dataset/sampler.h"
#include "tests/dataset/dataset_fixture.h"

namespace lerobot::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const MapDataset> open_dataset(const fs::path& root,
                                               MapDatasetOptions options = {}) {
  return MapDataset::open(DatasetMetadata::open(root, "toy/toy"), std::move(options));
}

MapDatasetOptions act_windows() {
  MapDatasetOptions options;
  options.windows.action = {0, 1, 2, 3, 4};
  return options;
}

/// LeRobot's order of training for the whole dataset.
EpochOrder training_order(const MapDataset& dataset, std::uint64_t seed = 1000) {
  SamplerOptions options;
  options.seed = seed;
  options.episodes.emplace(dataset.episodes().begin(), dataset.episodes().end());
  options.first_row = dataset.first_rows();
  const EpisodeTable& episodes = dataset.metadata().episodes();
  auto sampler = std::make_shared<EpisodeAwareSampler>(episodes.all_from(), episodes.all_to(),
                                                       std::move(options));
  return [sampler](std::uint64_t epoch) { return sampler->order(epoch); };
}

std::unique_ptr<MapLoader> training_loader(std::shared_ptr<const MapDataset> dataset,
                                           MapLoaderOptions options) {
  const auto order = training_order(*dataset);
  const std::int64_t samples = dataset->size();
  return std::make_unique<MapLoader>(std::move(dataset), order, samples, options);
}

MapLoaderOptions workers(std::int64_t count, std::int64_t batch_size = 4) {
  MapLoaderOptions options;
  options.num_workers = count;
  options.batch_size = batch_size;
  return options;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.is_contiguous() &&
         b.is_contiguous() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

void expect_equal(const Batch& found, const Batch& expected) {
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  for (const auto& [key, tensor] : expected.tensors)
    EXPECT_TRUE(same_bytes(found.at(key), tensor)) << key;
  EXPECT_EQ(found.task, expected.task);
  EXPECT_EQ(found.strings, expected.strings);
  EXPECT_EQ(found.frame_index, expected.frame_index);
}

/// A tensor of a safetensors file: its shape, type and bytes.
struct OracleTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

std::map<std::string, OracleTensor> read_oracle(const fs::path& path) {
  const std::string text = read_text_file(path);
  std::uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof header);
  std::map<std::string, OracleTensor> tensors;
  const Json json = parse_json(std::string_view(text).substr(8, header), path.string());
  for (const auto& [key, entry] : json.items()) {
    if (key == "__metadata__") continue;
    const auto begin = entry["data_offsets"][0].get<std::size_t>();
    const auto end = entry["data_offsets"][1].get<std::size_t>();
    tensors[key] = {entry["dtype"].get<std::string>(),
                    entry["shape"].get<std::vector<std::int64_t>>(),
                    text.substr(8 + header + begin, end - begin)};
  }
  return tensors;
}

TEST(MapLoader, FirstBatchEqualsLeRobotsCollatedBatchInEveryKey) {
  auto loader = training_loader(open_dataset(fixture("toy_h264"), act_windows()), workers(2));
  const Batch batch = loader->next();
  EXPECT_THAT(batch.frame_index, ElementsAre(22, 11, 3, 33));
  EXPECT_THAT(batch.task, ElementsAre("place", "pick", "pick", "place"));
  std::size_t keys = 0;
  for (const auto& [key, expected] :
       read_oracle(fs::path(LEROBOT_TEST_DATA) / "oracles/pipeline_toy_h264.safetensors")) {
    if (!key.starts_with("raw/")) continue;
    ++keys;
    const at::Tensor& found = batch.at(key.substr(4));
    EXPECT_EQ(found.sizes().vec(), expected.shape) << key;
    ASSERT_EQ(found.nbytes(), expected.bytes.size()) << key;
    EXPECT_EQ(std::memcmp(found.const_data_ptr(), expected.bytes.data(), found.nbytes()), 0) << key;
  }
  EXPECT_EQ(keys, batch.tensors.size());
  EXPECT_EQ(batch.at("action_is_pad").scalar_type(), at::kBool);
  EXPECT_EQ(batch.at("observation.images.front").scalar_type(), at::kByte);
}

TEST(MapLoader, DrawsTheFramesOfARealRunOfLeRobot) {
  // The seed, batch size and dataset of that run: 40 steps, three epochs.
  const auto loader = training_loader(open_dataset(fixture("toy_state")), workers(2));
  std::ifstream log(fs::path(LEROBOT_TEST_DATA) / "logs/state_single.rank0.jsonl");
  int steps = 0;
  for (std::string line; std::getline(log, line); ++steps)
    EXPECT_EQ(loader->next().frame_index,
              parse_json(line, "log")["index"].get<std::vector<std::int64_t>>())
        << "step " << steps + 1;
  EXPECT_EQ(steps, 40);
}

TEST(MapLoader, GivesTheSameBatchesWithAnyNumberOfThreads) {
  for (const char* name : {"toy_h264", "toy_types", "toy_state"}) {
    MapDatasetOptions options = act_windows();
    options.windows.image = {-2, -1, 0};
    const auto dataset = open_dataset(fixture(name), options);
    const auto expected = training_loader(dataset, workers(0));
    std::vector<Batch> batches;  // two epochs and a half
    for (std::int64_t i = 0; i < expected->batches_per_epoch() * 5 / 2; ++i)
      batches.push_back(expected->next());
    for (std::int64_t threads : {1, 2, 7}) {
      for (std::int64_t prefetch : {1, 4}) {
        MapLoaderOptions loader_options = workers(threads);
        loader_options.prefetch_factor = prefetch;
        const auto loader = training_loader(dataset, loader_options);
        for (const Batch& batch : batches) expect_equal(loader->next(), batch);
      }
    }
  }
}

TEST(MapLoader, GoesThroughEpochsWithAShortLastBatch) {
  const auto loader = training_loader(open_dataset(fixture("toy_h264")), workers(3));
  EXPECT_EQ(loader->batches_per_epoch(), 11);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> frames;
    for (int i = 0; i < 11; ++i) {
      const Batch batch = loader->next();
      EXPECT_EQ(batch.size(), i == 10 ? 3 : 4);
      EXPECT_EQ(batch.at("observation.images.wrist").size(0), batch.size());
      EXPECT_EQ(batch.task.size(), static_cast<std::size_t>(batch.size()));
      frames.insert(frames.end(), batch.frame_index.begin(), batch.frame_index.end());
    }
    std::sort(frames.begin(), frames.end());
    for (std::size_t i = 0; i < frames.size(); ++i)
      EXPECT_EQ(frames[i], static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(loader->statistics().batches, 33);
  EXPECT_EQ(loader->statistics().samples, 129);
  EXPECT_GT(loader->statistics().waited_s, 0.0);
}

TEST(MapLoader, ResumesAtAnyBatchOfAnyEpoch) {
  const auto dataset = open_dataset(fixture("toy_h264"), act_windows());
  const auto whole = training_loader(dataset, workers(1));
  std::vector<Batch> batches;
  for (int i = 0; i < 25; ++i) batches.push_back(whole->next());
  for (std::int64_t step : {0, 1, 10, 11, 16, 22}) {
    MapLoaderOptions options = workers(2);
    options.start = position_after(step, dataset->size(), 4, 1);
    const auto resumed = training_loader(dataset, options);
    for (auto i = static_cast<std::size_t>(step); i < 25; ++i)
      expect_equal(resumed->next(), batches[i]);
  }
}

TEST(MapLoader, GoesOnWithinAnEpochAlsoWithAnotherBatchSize) {
  const auto dataset = open_dataset(fixture("toy_h264"));
  const auto order = training_order(*dataset);
  MapLoaderOptions options = workers(2, 10);
  options.start = position_after(11 + 3, dataset->size(), 4, 1);  // after 12 samples of epoch 1
  const auto loader = training_loader(dataset, options);
  std::vector<std::int64_t> expected = order(1);
  expected.erase(expected.begin(), expected.begin() + 12);
  std::vector<std::int64_t> frames;
  for (int batch = 0; batch < 4; ++batch) {
    EXPECT_FALSE(loader->starts_epoch());
    const Batch drawn = loader->next();
    frames.insert(frames.end(), drawn.frame_index.begin(), drawn.frame_index.end());
  }
  EXPECT_EQ(frames, expected);
  for (std::uint64_t epoch : {2, 3}) {
    EXPECT_TRUE(loader->starts_epoch());
    frames.clear();
    for (std::int64_t batch = 0; batch < loader->batches_per_epoch(); ++batch) {
      const Batch drawn = loader->next();
      frames.insert(frames.end(), drawn.frame_index.begin(), drawn.frame_index.end());
    }
    EXPECT_EQ(frames, order(epoch));
  }

  // All samples of an epoch are done: the next one begins.
  options.start = {4, 11, 43};
  const auto next_epoch = training_loader(dataset, options);
  EXPECT_TRUE(next_epoch->starts_epoch());
  EXPECT_EQ(next_epoch->next().frame_index.front(), order(5).front());
}

TEST(MapLoader, DividesBatchesAmongRanksAsAccelerateDoes) {
  const auto dataset = open_dataset(fixture("toy_h264"));
  std::vector<std::int64_t> last_frames;
  for (std::int64_t rank : {0, 1}) {
    MapLoaderOptions options = workers(2);
    options.world = 2;
    options.rank = rank;
    const auto loader = training_loader(dataset, options);
    EXPECT_EQ(loader->batches_per_epoch(), 6);
    Batch batch;
    for (int i = 0; i < 6; ++i) batch = loader->next();
    EXPECT_THAT(batch.frame_index,
                rank == 0 ? ElementsAre(29, 31, 6, 22) : ElementsAre(11, 3, 33, 17));
  }
}

TEST(MapLoader, ReadsSequentiallyForEvaluation) {
  MapDatasetOptions dataset_options;
  dataset_options.episodes = {{1, 3}};
  const auto dataset = open_dataset(fixture("toy_h264"), dataset_options);
  const auto positions = evaluation_positions(dataset->task_index(), 0);
  MapLoaderOptions options = workers(2, 6);
  options.prefetch_across_epochs = false;
  MapLoader loader(
      dataset, [&](std::uint64_t) { return positions; },
      static_cast<std::int64_t>(positions.size()), options);
  for (int evaluation = 0; evaluation < 2; ++evaluation) {
    std::vector<std::int64_t> frames;
    for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      const Batch batch = loader.next();
      frames.insert(frames.end(), batch.frame_index.begin(), batch.frame_index.end());
    }
    EXPECT_THAT(frames,
                ElementsAre(12, 13, 14, 15, 16, 17, 18, 19, 20, 36, 37, 38, 39, 40, 41, 42));
  }
}

TEST(MapLoader, UsesMemoryAgainThatTheConsumerHasDropped) {
  for (std::int64_t threads : {0, 2}) {
    const auto loader = training_loader(open_dataset(fixture("toy_h264")), workers(threads));
    std::set<const void*> addresses;
    for (int i = 0; i < 60; ++i)
      addresses.insert(loader->next().at("observation.images.front").const_data_ptr());
    EXPECT_LE(addresses.size(), 6u);
  }
}

/// Turns a copy of toy_split into 200 episodes, each in a video file of its own.
void spread_over_many_files(DatasetCopy& dataset) {
  constexpr std::int64_t kEpisodes = 200;
  const auto rows = read_table(dataset.file("data/chunk-001/file-000.parquet"));
  const auto episode_of = integers_of(rows, "episode_index");
  const auto first = std::find(episode_of.begin(), episode_of.end(), 7) - episode_of.begin();
  const auto of_episode = rows->Slice(first);
  const std::int64_t length = of_episode->num_rows();
  std::vector<std::shared_ptr<arrow::Table>> copies(kEpisodes, of_episode);
  auto data = arrow::ConcatenateTables(copies).ValueOrDie()->CombineChunks().ValueOrDie();

  using Integers = std::vector<std::optional<std::int64_t>>;
  Integers index, episode_index, numbers, lengths, from, to, zeros;
  std::vector<std::optional<double>> from_s, to_s;
  fs::remove_all(dataset.file("videos/observation.images.front/chunk-000"));
  fs::create_directories(dataset.file("videos/observation.images.front/chunk-000"));
  for (std::int64_t episode = 0; episode < kEpisodes; ++episode) {
    for (std::int64_t i = 0; i < length; ++i) {
      index.push_back(episode * length + i);
      episode_index.push_back(episode);
    }
    numbers.push_back(episode);
    lengths.push_back(length);
    from.push_back(episode * length);
    to.push_back((episode + 1) * length);
    zeros.push_back(0);
    from_s.push_back(0.0);
    to_s.push_back(static_cast<double>(length) / 10);
    fs::copy_file(dataset.file("videos/observation.images.front/chunk-002/file-000.mp4"),
                  dataset.file(fmt::format(
                      "videos/observation.images.front/chunk-000/file-{:03d}.mp4", episode)));
  }
  data = with_column(data, "index", array_of<arrow::Int64Builder>(index));
  data = with_column(data, "episode_index", array_of<arrow::Int64Builder>(episode_index));
  write_table(*data, dataset.file("data/chunk-000/file-000.parquet"));

  std::shared_ptr<arrow::Table> episodes = arrow::Table::Make(
      arrow::schema({}), std::vector<std::shared_ptr<arrow::ChunkedArray>>(), kEpisodes);
  const auto add = [&](const char* column, const Integers& values) {
    episodes = with_column(episodes, column, array_of<arrow::Int64Builder>(values));
  };
  add("episode_index", numbers);
  add("length", lengths);
  add("data/chunk_index", zeros);
  add("data/file_index", zeros);
  add("dataset_from_index", from);
  add("dataset_to_index", to);
  add("videos/observation.images.front/chunk_index", zeros);
  add("videos/observation.images.front/file_index", numbers);
  episodes = with_column(episodes, "videos/observation.images.front/from_timestamp",
                         array_of<arrow::DoubleBuilder>(from_s));
  episodes = with_column(episodes, "videos/observation.images.front/to_timestamp",
                         array_of<arrow::DoubleBuilder>(to_s));
  fs::remove_all(dataset.file("meta/episodes"));
  fs::create_directories(dataset.file("meta/episodes/chunk-000"));
  write_table(*episodes, dataset.file("meta/episodes/chunk-000/file-000.parquet"));
  dataset.edit_info([&](Json& info) {
    info["total_episodes"] = kEpisodes;
    info["total_frames"] = kEpisodes * length;
  });
}

std::int64_t open_files() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

TEST(MapLoader, KeepsFilesAndMemoryFlatOverManyVideos) {
  DatasetCopy copy("toy_split");
  spread_over_many_files(copy);
  const auto dataset = open_dataset(copy.root());
  MapLoaderOptions options = workers(2);
  options.decoder_cache_size = 8;
  const auto loader = training_loader(dataset, options);
  const auto epoch = [&] {
    for (std::int64_t i = 0; i < loader->batches_per_epoch(); ++i) loader->next();
  };
  epoch();
  const std::int64_t files = open_files();
  const std::int64_t bytes = resident_bytes();
  for (int i = 0; i < 4; ++i) epoch();
  EXPECT_LE(open_files(), files);
#ifndef __SANITIZE_ADDRESS__  // its quarantine of freed memory grows
  EXPECT_LT(resident_bytes(), bytes + (8 << 20));
#endif
}

TEST(MapLoader, NeverTouchesABatchThatTheConsumerStillHolds) {
  const auto dataset = open_dataset(fixture("toy_h264"));
  const auto loader = training_loader(dataset, workers(2));
  std::vector<Batch> kept;
  std::vector<at::Tensor> views;
  std::vector<at::Tensor> copies;
  for (int i = 0; i < 30; ++i) {
    Batch batch = loader->next();
    copies.push_back(batch.at("observation.images.front").clone());
    if (i % 2) kept.push_back(batch);
    views.push_back(batch.at("observation.images.front").narrow(0, 0, batch.size()));
  }
  for (std::size_t i = 0; i < views.size(); ++i) EXPECT_TRUE(same_bytes(views[i], copies[i]));
}

TEST(MapLoader, StopsFromAnyState) {
  const auto dataset = open_dataset(fixture("toy_h264"), act_windows());
  for (std::int64_t threads : {0, 2}) {
    { const auto never_used = training_loader(dataset, workers(threads)); }
    {
      const auto stopped_before = training_loader(dataset, workers(threads));
      stopped_before->stop();
      EXPECT_THAT(error_of([&] { stopped_before->next(); }), HasSubstr("stopped"));
    }
    {
      const auto abandoned = training_loader(dataset, workers(threads));
      abandoned->next();
    }
  }
}

TEST(MapLoader, WakesAConsumerThatIsBlockedWhenItIsStopped) {
  const auto dataset = open_dataset(fixture("toy_h264"));
  std::atomic<bool> is_decoding = false;
  std::atomic<bool> may_go_on = false;
  MapLoaderOptions options = workers(1);
  options.transform = [&](at::Tensor&, at::Generator&) {
    is_decoding = true;
    while (!may_go_on) std::this_thread::yield();
  };
  const auto loader = training_loader(dataset, options);
  std::string message;
  std::thread consumer([&] { message = error_of([&] { loader->next(); }); });
  while (!is_decoding) std::this_thread::yield();
  loader->stop();
  consumer.join();  // while the decode thread is still busy
  EXPECT_THAT(message, HasSubstr("stopped"));
  may_go_on = true;
}

TEST(MapLoader, ThrowsAnErrorInThePlaceOfItsBatchWhateverTheThreads) {
  // The second half of the wrist camera's coded frames is noise.
  DatasetCopy broken("toy_h264");
  const std::string video = "videos/observation.images.wrist/chunk-000/file-000.mp4";
  std::string text = read_text_file(broken.file(video));
  const std::size_t media = text.find("mdat");
  const std::size_t index = text.find("moov");
  const std::size_t end = index > media ? index - 4 : text.size();
  for (std::size_t i = (media + end) / 2; i < end; ++i) text[i] = '\xff';
  broken.write(video, text);
  const auto dataset = open_dataset(broken.root());

  // A decoder that reorders may meet a damaged coded frame one frame earlier, according to what it
  // decoded before: the batch and the coded frame are the same, the sample may be its neighbour.
  const std::regex coded_frame("number [0-9]+ in the file");
  std::set<std::pair<int, std::string>> outcomes;
  for (std::int64_t threads : {0, 1, 2, 7}) {
    const std::int64_t samples = dataset->size();
    MapLoader loader(
        dataset,
        [&](std::uint64_t) {
          std::vector<std::int64_t> order;
          for (std::int64_t i = 0; i < samples; ++i) order.push_back(i);
          return order;
        },
        samples, workers(threads));
    int batches = 0;
    const std::string message = error_of([&] {
      for (;; ++batches) loader.next();
    });
    EXPECT_EQ(error_of([&] { loader.next(); }), message);
    EXPECT_THAT(message, AllOf(HasSubstr("episode"), HasSubstr("observation.images.wrist"),
                               HasSubstr("frame"), HasSubstr(video)));
    std::smatch match;
    ASSERT_TRUE(std::regex_search(message, match, coded_frame)) << message;
    outcomes.emplace(batches, match.str());
  }
  EXPECT_EQ(outcomes.size(), 1u);
  EXPECT_GT(outcomes.begin()->first, 0);
}

/// Adds one random number to every pixel.
void add_noise(at::Tensor& pixels, at::Generator& generator) {
  pixels.add_(at::randint(0, 256, {1}, generator, at::kByte));
}

TEST(MapLoader, TransformsColourCamerasTheSameWithAnyNumberOfThreadsAndAfterResuming) {
  const auto dataset = open_dataset(fixture("toy_types"));
  const auto plain = training_loader(dataset, workers(0));
  std::vector<Batch> expected;
  for (std::int64_t threads : {1, 2, 7}) {
    MapLoaderOptions options = workers(threads);
    options.transform = add_noise;
    options.transform_seed = 7;
    if (threads == 7) options.start = position_after(2, dataset->size(), 4, 1);
    const auto loader = training_loader(dataset, options);
    for (std::size_t i = threads == 7 ? 2 : 0; i < 6; ++i) {
      const Batch batch = loader->next();
      if (threads == 1) {
        const Batch original = plain->next();
        for (const char* camera : {"observation.images.still", "observation.images.video"})
          EXPECT_FALSE(same_bytes(batch.at(camera), original.at(camera)));
        for (const char* camera : {"observation.images.depthvid", "observation.images.depthimg"})
          EXPECT_TRUE(same_bytes(batch.at(camera), original.at(camera)));
        Batch copy = batch;
        for (auto& [key, tensor] : copy.tensors) tensor = tensor.clone();
        expected.push_back(copy);
      } else {
        expect_equal(batch, expected[i]);
      }
    }
  }
}

TEST(MapLoader, DrawsTransformsFromTheDefaultGeneratorInTheTrainingThread) {
  const auto dataset = open_dataset(fixture("toy_h264"));
  MapLoaderOptions options = workers(0);
  options.transform = add_noise;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(42);
  const auto loader = training_loader(dataset, options);
  const Batch batch = loader->next();

  generator.set_current_seed(42);
  const auto plain = training_loader(dataset, workers(0));
  const Batch original = plain->next();
  for (std::int64_t row = 0; row < 4; ++row)
    for (const char* camera : {"observation.images.front", "observation.images.wrist"}) {
      at::Tensor pixels = original.at(camera)[row];
      add_noise(pixels, generator);
      EXPECT_TRUE(same_bytes(batch.at(camera)[row], pixels));
    }
}

TEST(MapLoader, RefusesNumbersOutOfRange) {
  const auto dataset = open_dataset(fixture("toy_h264"));
  EXPECT_THAT(error_of([&] { training_loader(dataset, workers(-1)); }), HasSubstr("num_workers"));
  MapLoaderOptions options = workers(0);
  options.start = {0, 11, 44};
  EXPECT_THAT(error_of([&] { training_loader(dataset, options); }),
              AllOf(HasSubstr("first sample"), HasSubstr("42"), HasSubstr("44")));
  options.start = {-1, 0, 0};
  EXPECT_THAT(error_of([&] { training_loader(dataset, options); }), HasSubstr("epoch -1"));
}

}  // namespace
}  // namespace lerobot::dataset
