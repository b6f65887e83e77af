#include "lerobot/processor/policy_processors.h"

#include <optional>
#include <set>

#include "lerobot/base/error.h"
#include "lerobot/config/reflection.h"
#include "lerobot/processor/normalizer.h"
#include "lerobot/processor/steps.h"

namespace lerobot::processor {
namespace {

namespace fs = std::filesystem;

/// One entry of a pipeline's "steps", with what is needed to build it and to say what is wrong.
class StepEntry {
 public:
  StepEntry(const fs::path& file, std::size_t index, const Json& entry)
      : file_(file), index_(index), entry_(entry) {
    if (!entry.is_object()) wrong("is not an object");
    const auto name = entry.find("registry_name");
    if (name == entry.end() || !name->is_string())
      wrong("has no registry_name: steps that name a Python class cannot be run here");
    name_ = name->get<std::string>();
    config_ = entry.value("config", Json::object());
    if (!config_.is_object()) wrong("has a config that is not an object");
  }

  const std::string& name() const { return name_; }

  [[noreturn]] void wrong(const std::string& what) const {
    fail("{}: step {}{} {}", file_.string(), index_, name_.empty() ? "" : " (" + name_ + ")", what);
  }

  void replace_config(const Json& values) { config_.update(values); }

  /// Reads the field `name`; `value` keeps what it had when the field is absent.
  template <class T>
  void read(const char* name, T& value) {
    known_.insert(name);
    const auto found = config_.find(name);
    if (found == config_.end()) return;
    std::vector<config::Problem> problems;
    config::Reader reader(nullptr, &problems);
    const auto scope = reader.enter_field(name);
    config::Codec<T>::read(reader, *found, value);
    if (!problems.empty()) wrong("has a wrong value: " + problems.front().message);
  }

  /// Throws when the file has a field that nothing has read: it would change what the step does.
  void check_all_read() const {
    for (const auto& [name, value] : config_.items())
      if (!known_.contains(name)) wrong("has an unknown field " + name);
  }

  /// The tensors of the state file; none when the entry names no file.
  std::optional<dataset::DatasetStats> saved_statistics() const {
    const auto found = entry_.find("state_file");
    if (found == entry_.end() || found->is_null()) return std::nullopt;
    if (!found->is_string()) wrong("has a state_file that is not text");
    const fs::path name = found->get<std::string>();
    if (name.has_parent_path()) wrong("has a state_file outside its folder: " + name.string());
    const fs::path path = file_.parent_path() / name;
    if (!fs::exists(path)) wrong("needs its state file " + path.string() + ", which is missing");
    dataset::DatasetStats statistics;
    for (auto& [key, tensor] : serialization::SafetensorsFile(path).all()) {
      const std::size_t dot = key.rfind('.');
      if (dot == std::string::npos)
        fail("{}: tensor {} is not named <feature>.<statistic>", path.string(), key);
      statistics[key.substr(0, dot)].emplace(key.substr(dot + 1), std::move(tensor));
    }
    return statistics;
  }

 private:
  fs::path file_;
  std::size_t index_;
  Json entry_;
  std::string name_;
  Json config_;
  std::set<std::string> known_;
};

std::unique_ptr<Step> make_normalizer(StepEntry& entry, NormalizerStep::Direction direction,
                                      const dataset::DatasetStats* statistics) {
  NormalizerSettings settings;
  entry.read("eps", settings.eps);
  entry.read("features", settings.features);
  entry.read("norm_map", settings.modes);
  entry.read("normalize_observation_keys", settings.observation_keys);
  entry.check_all_read();
  return std::make_unique<NormalizerStep>(
      direction, std::move(settings),
      statistics ? *statistics : entry.saved_statistics().value_or(dataset::DatasetStats{}));
}

std::unique_ptr<Step> make_step(StepEntry& entry, const dataset::DatasetStats* statistics) {
  if (entry.name() == RenameStep::kName) {
    std::map<std::string, std::string> names;
    entry.read("rename_map", names);
    entry.check_all_read();
    return std::make_unique<RenameStep>(std::move(names));
  }
  if (entry.name() == ToBatchStep::kName) {
    entry.check_all_read();
    return std::make_unique<ToBatchStep>();
  }
  if (entry.name() == DeviceStep::kName) {
    std::string device = "cpu";
    std::optional<std::string> float_type;
    entry.read("device", device);
    entry.read("float_dtype", float_type);
    entry.check_all_read();
    return std::make_unique<DeviceStep>(device, std::move(float_type));
  }
  if (entry.name() == NormalizerStep::kNormalizerName)
    return make_normalizer(entry, NormalizerStep::Direction::kNormalize, statistics);
  if (entry.name() == NormalizerStep::kUnnormalizerName)
    return make_normalizer(entry, NormalizerStep::Direction::kUnnormalize, statistics);
  entry.wrong(
      "is not known here; known steps: rename_observations_processor, to_batch_processor, "
      "device_processor, normalizer_processor, unnormalizer_processor");
}

/// Inputs, then outputs.
config::FeatureMap all_features(const PolicyProcessorSettings& settings) {
  config::FeatureMap features = settings.input_features;
  features.insert(features.end(), settings.output_features.begin(), settings.output_features.end());
  return features;
}

Json device_type(const std::string& device) { return device.substr(0, device.find(':')); }

}  // namespace

PolicyProcessors make_policy_processors(const PolicyProcessorSettings& settings,
                                        const dataset::DatasetStats& statistics) {
  NormalizerSettings normalizer;
  normalizer.features = all_features(settings);
  normalizer.modes = settings.normalization;
  NormalizerSettings unnormalizer = normalizer;
  unnormalizer.features = settings.output_features;

  std::vector<std::unique_ptr<Step>> before;
  before.push_back(std::make_unique<RenameStep>(settings.rename_map));
  before.push_back(std::make_unique<ToBatchStep>());
  before.push_back(std::make_unique<DeviceStep>(settings.device, std::nullopt));
  before.push_back(std::make_unique<NormalizerStep>(NormalizerStep::Direction::kNormalize,
                                                    std::move(normalizer), statistics));
  std::vector<std::unique_ptr<Step>> after;
  after.push_back(std::make_unique<NormalizerStep>(NormalizerStep::Direction::kUnnormalize,
                                                   std::move(unnormalizer), statistics));
  after.push_back(std::make_unique<DeviceStep>("cpu", std::nullopt));
  return {Pipeline(kPreprocessorName, std::move(before)),
          Pipeline(kPostprocessorName, std::move(after))};
}

PolicyProcessors load_policy_processors(const fs::path& directory,
                                        const PolicyProcessorSettings& settings,
                                        const dataset::DatasetStats* new_statistics) {
  using config::Codec;
  const Json modes = Codec<NormalizationMap>::write(settings.normalization, nullptr);
  const auto features = [](const config::FeatureMap& map) {
    return Codec<config::FeatureMap>::write(map, nullptr);
  };
  Json names = Json::object();
  for (const auto& [from, to] : settings.rename_map) names[from] = to;

  StepOverrides before;
  before[std::string(RenameStep::kName)].config["rename_map"] = names;
  before[std::string(DeviceStep::kName)].config["device"] = device_type(settings.device);
  StepOverride& normalizer = before[std::string(NormalizerStep::kNormalizerName)];
  normalizer.config["features"] = features(all_features(settings));
  normalizer.config["norm_map"] = modes;
  normalizer.statistics = new_statistics;

  StepOverrides after;
  StepOverride& unnormalizer = after[std::string(NormalizerStep::kUnnormalizerName)];
  unnormalizer.config["features"] = features(settings.output_features);
  unnormalizer.config["norm_map"] = modes;
  unnormalizer.statistics = new_statistics;

  return {load_pipeline(directory, kPreprocessorName, before),
          load_pipeline(directory, kPostprocessorName, after)};
}

Pipeline load_pipeline(const fs::path& directory, const std::string& name,
                       const StepOverrides& overrides) {
  const fs::path file = directory / (name + ".json");
  const Json json = read_json_file(file);
  const auto entries = json.is_object() ? json.find("steps") : json.end();
  if (!json.is_object() || entries == json.end() || !entries->is_array())
    fail("{}: expected an object with a list called steps", file.string());

  std::vector<std::unique_ptr<Step>> steps;
  std::set<std::string, std::less<>> unused;
  for (const auto& [step, value] : overrides) unused.insert(step);
  for (std::size_t i = 0; i < entries->size(); ++i) {
    StepEntry entry(file, i, (*entries)[i]);
    const dataset::DatasetStats* statistics = nullptr;
    if (const auto found = overrides.find(entry.name()); found != overrides.end()) {
      entry.replace_config(found->second.config);
      statistics = found->second.statistics;
      unused.erase(entry.name());
    }
    steps.push_back(make_step(entry, statistics));
  }
  if (!unused.empty())
    fail("{}: has no step {}, which this run has to set", file.string(), *unused.begin());
  return Pipeline(json.value("name", name), std::move(steps));
}

}  // namespace lerobot::processor
