#include "lerobot/processor/pipeline.h"

#include <fmt/format.h>

#include "lerobot/base/files.h"

namespace lerobot::processor {

Pipeline::Pipeline(std::string name, std::vector<std::unique_ptr<Step>> steps)
    : name_(std::move(name)), steps_(std::move(steps)) {}

void Pipeline::apply(dataset::Batch& batch) const {
  for (const auto& step : steps_) step->apply(batch);
}

void Pipeline::save(const std::filesystem::path& directory) const {
  Json steps = Json::array();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = *steps_[i];
    Json entry;
    entry["registry_name"] = step.name();
    entry["config"] = step.config();
    if (const serialization::NamedTensors state = step.state(); !state.empty()) {
      const std::string file = fmt::format("{}_step_{}_{}.safetensors", name_, i, step.name());
      serialization::save_safetensors(directory / file, state);
      entry["state_file"] = file;
    }
    steps.push_back(std::move(entry));
  }
  Json json;
  json["name"] = name_;
  json["steps"] = std::move(steps);
  write_file_atomic(directory / (name_ + ".json"), to_python_json(json, 2));
}

}  // namespace lerobot::processor
