// A small checkpoint with every file that a complete one needs.
#pragma once

#include <string>
#include <vector>

#include <ATen/ops/full.h>

#include "lerobot/checkpoint/checkpoint_writer.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/checkpoint/training_state.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {

/// `tensors` go into model.safetensors.
inline std::vector<FileEntry> small_checkpoint(std::int64_t step,
                                               const serialization::NamedTensors& tensors) {
  const fs::path model(config::kPretrainedModelFolder), state(config::kTrainingStateFolder);
  TrainingStep training_step;
  training_step.step = step;
  return {
      json_file(model / config::kPolicyConfigFile, Json{{"type", "act"}}),
      json_file(model / config::kTrainConfigFile, Json{{"seed", 1}}),
      tensor_file(model / kModelFile, tensors, {{"format", "pt"}}),
      json_file(state / kTrainingStepFile, to_json(training_step)),
      tensor_file(state / kRngStateFile, {}),
      tensor_file(state / kOptimizerStateFile, tensors),
      json_file(state / kOptimizerParamGroupsFile, Json::array()),
  };
}

inline serialization::NamedTensors small_tensors(double value) {
  return {{"a", at::full({1000}, value, at::kFloat)}, {"b", at::full({3}, value, at::kFloat)}};
}

/// The value that small_tensors() had in this checkpoint.
inline float value_in(const fs::path& checkpoint) {
  const serialization::SafetensorsFile file(checkpoint / config::kPretrainedModelFolder /
                                            kModelFile);
  return file.tensor("b").const_data_ptr<float>()[0];
}

}  // namespace lerobot::checkpoint
