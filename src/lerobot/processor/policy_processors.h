// The two pipelines around a policy: what they are made of, how they are made from a dataset's
// statistics, and how they are read back from a checkpoint.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/processor/pipeline.h"

namespace lerobot::processor {

inline constexpr const char* kPreprocessorName = "policy_preprocessor";
inline constexpr const char* kPostprocessorName = "policy_postprocessor";

struct PolicyProcessors {
  Pipeline preprocessor;   // batch of a dataset -> what the policy takes
  Pipeline postprocessor;  // "action" of the policy -> units of the dataset, on the CPU
};

/// What a policy and a run decide about the default pipelines.
struct PolicyProcessorSettings {
  config::FeatureMap input_features;
  config::FeatureMap output_features;
  NormalizationMap normalization;  // feature types that are absent pass through
  std::string device = "cpu";      // "cpu", "cuda" (any index is dropped, as in LeRobot)
  std::map<std::string, std::string> rename_map;
};

/// LeRobot's default pipelines: rename, batch, device, normalise; unnormalise, to CPU.
PolicyProcessors make_policy_processors(const PolicyProcessorSettings& settings,
                                        const dataset::DatasetStats& statistics);

/// Reads both pipelines from a pretrained_model folder; the settings replace what the files say
/// about device, features, modes and names. `new_statistics` (fine-tuning) replace the saved ones;
/// null (resume) keeps them.
PolicyProcessors load_policy_processors(const std::filesystem::path& directory,
                                        const PolicyProcessorSettings& settings,
                                        const dataset::DatasetStats* new_statistics);

/// Replacements for a loaded pipeline, by step name.
struct StepOverride {
  Json config = Json::object();                       // keys that replace those of the file
  const dataset::DatasetStats* statistics = nullptr;  // replaces the step's state file
};
using StepOverrides = std::map<std::string, StepOverride, std::less<>>;

/// Reads <name>.json and its state files. Throws Error naming the file and the step when a step is
/// unknown, a field is wrong, a state file is missing, or an override names no step of the file.
Pipeline load_pipeline(const std::filesystem::path& directory, const std::string& name,
                       const StepOverrides& overrides = {});

}  // namespace lerobot::processor
