// Writes samples of a dataset as the training loader makes them, for test_dataset.py to compare
// with LeRobotDataset.
//   dump_items OUT.safetensors ROOT [name=value ...]
//     positions=0,5,7   samples to write (default: all)
//     episodes=0,2      episodes to load (default: all)
//     observation=-1,0 image=0,1 action=0,1,2 reward=0   windows, in frames
//     depth_unit=m tolerance=0.0001
// Beside OUT.safetensors, OUT.json holds the task texts and other strings by key.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/dataset/map_dataset.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/serialization/safetensors.h"
#include "lerobot/video/decoder_cache.h"

namespace {

using lerobot::Json;

std::vector<std::int64_t> parse_numbers(const std::string& text) {
  std::vector<std::int64_t> numbers;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) numbers.push_back(std::stoll(part));
  return numbers;
}

void dump(const std::string& out, const std::string& root,
          const std::map<std::string, std::string>& options) {
  const auto numbers = [&](const char* name) {
    const auto found = options.find(name);
    return found == options.end() ? std::vector<std::int64_t>{} : parse_numbers(found->second);
  };
  const auto text = [&](const char* name, const std::string& otherwise) {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : found->second;
  };
  const auto metadata =
      lerobot::dataset::DatasetMetadata::open(root, "interop/dump", text("depth_unit", "mm"));
  lerobot::dataset::MapDatasetOptions dataset_options;
  if (options.contains("episodes")) dataset_options.episodes = numbers("episodes");
  dataset_options.windows = {numbers("observation"), numbers("image"), numbers("action"),
                             numbers("reward")};
  dataset_options.tolerance_s = std::stod(text("tolerance", "0.0001"));
  const auto dataset = lerobot::dataset::MapDataset::open(metadata, dataset_options);

  std::vector<std::int64_t> positions = numbers("positions");
  if (!options.contains("positions")) {
    positions.resize(static_cast<std::size_t>(dataset->size()));
    std::iota(positions.begin(), positions.end(), 0);
  }
  lerobot::video::DecoderCache decoders(8);
  const auto buffer = dataset->layout().allocate(static_cast<std::int64_t>(positions.size()));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    dataset->fill_values(positions[i], row, *buffer);
    for (std::size_t camera = 0; camera < dataset->layout().cameras(); ++camera) {
      dataset->fill_camera(camera, positions[i], row, *buffer, decoders);
    }
  }
  lerobot::serialization::NamedTensors tensors(buffer->batch.tensors.begin(),
                                               buffer->batch.tensors.end());
  lerobot::serialization::save_safetensors(out, tensors);
  Json strings = Json::object();
  strings["task"] = buffer->batch.task;
  for (const auto& [key, values] : buffer->batch.strings) strings[key] = values;
  std::ofstream(out.substr(0, out.rfind('.')) + ".json") << strings.dump();
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 3; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto equals = argument.find('=');
    options[argument.substr(0, equals)] = argument.substr(equals + 1);
  }
  try {
    dump(argv[1], argv[2], options);
  } catch (const std::exception& error) {
    std::cerr << "dump_items: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
