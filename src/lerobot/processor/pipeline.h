// Pre- and postprocessing pipelines and their files (LeRobot's policy_preprocessor.json and
// policy_postprocessor.json with *.safetensors beside them).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::processor {

/// Feature type ("VISUAL", "STATE", ...) to mode, in the order of the files.
using NormalizationMap = std::vector<std::pair<std::string, config::NormalizationMode>>;

/// One step of a pipeline. Steps change the batch in place.
class Step {
 public:
  virtual ~Step() = default;
  /// LeRobot's registry name, for instance "normalizer_processor".
  virtual std::string name() const = 0;
  virtual Json config() const = 0;
  /// Tensors of the step's state file; empty: the step has none.
  virtual serialization::NamedTensors state() const { return {}; }
  virtual void apply(dataset::Batch& batch) const = 0;
};

class Pipeline {
 public:
  Pipeline(std::string name, std::vector<std::unique_ptr<Step>> steps);
  Pipeline(Pipeline&&) noexcept = default;
  Pipeline& operator=(Pipeline&&) noexcept = default;

  const std::string& name() const { return name_; }
  const std::vector<std::unique_ptr<Step>>& steps() const { return steps_; }

  void apply(dataset::Batch& batch) const;
  /// Writes <name>.json and <name>_step_<i>_<step>.safetensors for each step with state.
  void save(const std::filesystem::path& directory) const;

 private:
  std::string name_;
  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace lerobot::processor
