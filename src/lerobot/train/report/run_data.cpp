#include "lerobot/train/report/run_data.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/config/run_folder.h"

namespace lerobot::train {
namespace {

/// Reads metrics.jsonl line by line: a long run's file need not fit into memory as a tree.
class MetricsReader {
 public:
  explicit MetricsReader(RunData& data) : data_(data) {}

  void read(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
      data_.notes.push_back(fmt::format("{}: cannot be read", file.filename().string()));
      return;
    }
    std::string line;
    while (std::getline(stream, line)) {
      // The last line of a run that goes on may be half there.
      const bool is_whole = !stream.eof();
      if (!line.empty() && !add(line) && is_whole) ++damaged_;
    }
    if (damaged_ > 0)
      data_.notes.push_back(fmt::format("{}: {} line{} could not be read and {} left out",
                                        file.filename().string(), damaged_,
                                        damaged_ == 1 ? "" : "s", damaged_ == 1 ? "is" : "are"));
  }

 private:
  bool add(const std::string& line) {
    Json object;
    try {
      object = parse_json(line, kMetricsFile);
    } catch (const Error&) {
      return false;
    }
    if (!object.is_object()) return false;
    const auto step = object.find("step");
    if (step == object.end() || !step->is_number_integer()) return false;
    const auto number = step->get<std::int64_t>();
    if (number < 0) return false;
    for (const auto& [key, value] : object.items())
      if (key != "step" && value.is_number()) add(key, number, value.get<double>());
    return true;
  }

  void add(const std::string& key, std::int64_t step, double value) {
    auto [found, is_new] = data_.series.try_emplace(key);
    if (is_new) data_.keys.push_back(key);
    Series& series = found->second;
    // A run that was resumed from an earlier checkpoint has gone through these steps again.
    while (!series.empty() && series.steps.back() >= step) {
      series.steps.pop_back();
      series.values.pop_back();
    }
    series.steps.push_back(step);
    series.values.push_back(value);
  }

  RunData& data_;
  std::int64_t damaged_ = 0;
};

std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_regular_file(ignored)) continue;
    const auto size = entry->file_size(ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

std::vector<Checkpoint> list_checkpoints(const RunData& data) {
  const fs::path folder = data.folder / config::kCheckpointsFolder;
  const auto last = config::named_by_last(folder / config::kLastName);
  const Series* held_out = data.find("eval_loss");
  std::vector<Checkpoint> checkpoints;
  for (const fs::path& path : config::step_folders(folder)) {
    Checkpoint& checkpoint = checkpoints.emplace_back();
    checkpoint.step = config::parse_step_folder_name(path.filename().string()).value_or(0);
    checkpoint.folder = path;
    checkpoint.bytes = bytes_below(path);
    checkpoint.missing = checkpoint::missing_part(path).value_or("");
    checkpoint.is_last = last && last->filename() == path.filename();
    if (held_out == nullptr) continue;
    const auto at = std::ranges::lower_bound(held_out->steps, checkpoint.step);
    if (at != held_out->steps.end() && *at == checkpoint.step)
      checkpoint.held_out_loss =
          held_out->values[static_cast<std::size_t>(at - held_out->steps.begin())];
  }
  std::ranges::reverse(checkpoints);  // step_folders() has the highest step first
  return checkpoints;
}

Json configuration_of_checkpoints(RunData& data) {
  for (auto checkpoint = data.checkpoints.rbegin(); checkpoint != data.checkpoints.rend();
       ++checkpoint) {
    const fs::path file =
        checkpoint->folder / config::kPretrainedModelFolder / config::kTrainConfigFile;
    if (!fs::exists(file)) continue;
    try {
      return read_json_file(file);
    } catch (const Error& error) {
      data.notes.emplace_back(error.what());
    }
  }
  return nullptr;
}

}  // namespace

std::int64_t RunData::last_step() const {
  std::int64_t step = state ? state->start_step : 0;
  for (const auto& [key, values] : series)
    if (!values.empty()) step = std::max(step, values.steps.back());
  for (const Checkpoint& checkpoint : checkpoints) step = std::max(step, checkpoint.step);
  return step;
}

const Series* RunData::find(const std::string& key) const {
  const auto found = series.find(key);
  return found == series.end() ? nullptr : &found->second;
}

std::string text_at(const Json& json, const char* pointer) {
  const Json::json_pointer path(pointer);
  return json.is_object() && json.contains(path) && json.at(path).is_string()
             ? json.at(path).get<std::string>()
             : "";
}

RunData read_run_data(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    fail("{}: is no folder; pass the output folder of a run", folder.string());
  RunData data;
  data.folder = fs::canonical(folder);
  try {
    data.state = read_run_state(data.folder);
  } catch (const Error& problem) {
    data.notes.emplace_back(problem.what());
  }
  if (const fs::path metrics = data.folder / kMetricsFile; fs::exists(metrics))
    MetricsReader(data).read(metrics);
  else
    data.notes.push_back(fmt::format("{}: there is none", kMetricsFile));
  data.checkpoints = list_checkpoints(data);
  if (!data.state && data.series.empty() && data.checkpoints.empty())
    fail("{}: holds no records of a run ({}, {}, {}/): pass the output folder of lerobot-train",
         folder.string(), kRunFile, kMetricsFile, config::kCheckpointsFolder);
  if (data.state && data.state->configuration.is_object())
    data.configuration = data.state->configuration;
  else
    data.configuration = configuration_of_checkpoints(data);
  if (!data.state)
    data.notes.push_back(
        fmt::format("{}: there is none that can be read, so that it is not known "
                    "how the run stands",
                    kRunFile));
  return data;
}

}  // namespace lerobot::train
