// The files of a pipeline: written as LeRobot writes them, and read with what a run overrides.
#include <filesystem>
#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/dataset/stats.h"
#include "lerobot/processor/policy_processors.h"
#include "tests/support/error_of.h"

namespace lerobot::processor {
namespace {

using config::FeatureType;
using config::NormalizationMode;
using testing::HasSubstr;

const fs::path kData = LEROBOT_TEST_DATA;
const fs::path kCheckpoint = kData / "checkpoints/state_single/000008/pretrained_model";

class PipelineFiles : public testing::Test {
 protected:
  PipelineFiles()
      : directory_(fs::temp_directory_path() / fmt::format("pipeline_files.{}", ::getpid())) {
    fs::create_directories(directory_);
  }
  ~PipelineFiles() override { fs::remove_all(directory_); }

  void copy_checkpoint() {
    for (const auto& entry : fs::directory_iterator(kCheckpoint))
      if (entry.path().filename().string().starts_with("policy_"))
        fs::copy(entry.path(), directory_ / entry.path().filename());
  }

  /// Replaces text in a file of the copied checkpoint.
  void edit(const std::string& file, std::string_view from, std::string_view to) {
    std::string text = read_text_file(directory_ / file);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    write_file_atomic(directory_ / file, text);
  }

  std::string load_error(const std::string& name, const StepOverrides& overrides = {}) {
    return error_of([&] { load_pipeline(directory_, name, overrides); });
  }

  fs::path directory_;
};

PolicyProcessorSettings state_settings() {
  PolicyProcessorSettings settings;
  settings.input_features = {{"observation.state", {FeatureType::kState, {4}}},
                             {"observation.environment_state", {FeatureType::kEnv, {5}}}};
  settings.output_features = {{"action", {FeatureType::kAction, {3}}}};
  settings.normalization = {{"VISUAL", NormalizationMode::kMeanStd},
                            {"STATE", NormalizationMode::kMeanStd},
                            {"ACTION", NormalizationMode::kMeanStd}};
  return settings;
}

dataset::DatasetStats stats_of(const char* dataset) {
  return dataset::DatasetMetadata::open(kData / "datasets" / dataset, dataset)->stats();
}

void expect_same_files(const fs::path& actual, const fs::path& expected) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(expected)) {
    const fs::path name = entry.path().filename();
    if (!name.string().starts_with("policy_p")) continue;
    ++files;
    EXPECT_TRUE(read_text_file(actual / name) == read_text_file(entry.path())) << name;
  }
  EXPECT_EQ(files, 4);
}

TEST_F(PipelineFiles, OfANewPolicyAreLeRobotsByteForByte) {
  const PolicyProcessors processors =
      make_policy_processors(state_settings(), stats_of("toy_state"));
  processors.preprocessor.save(directory_);
  processors.postprocessor.save(directory_);
  expect_same_files(directory_, kCheckpoint);
}

TEST_F(PipelineFiles, SurviveLoadingAndSavingByteForByte) {
  const PolicyProcessors processors =
      load_policy_processors(kCheckpoint, state_settings(), nullptr);
  processors.preprocessor.save(directory_);
  processors.postprocessor.save(directory_);
  expect_same_files(directory_, kCheckpoint);
}

TEST_F(PipelineFiles, GiveCameraCountsTheShapeThatEachSideDeclares) {
  PolicyProcessorSettings settings = state_settings();
  settings.input_features = {{"observation.images.front", {FeatureType::kVisual, {3, 96, 96}}}};
  const PolicyProcessors processors = make_policy_processors(settings, stats_of("toy_h264"));
  processors.preprocessor.save(directory_);
  processors.postprocessor.save(directory_);
  using Shape = std::vector<std::int64_t>;
  const serialization::SafetensorsFile before(
      directory_ / "policy_preprocessor_step_3_normalizer_processor.safetensors");
  EXPECT_EQ(before.shape("observation.images.front.count"), (Shape{1, 1, 1}));
  EXPECT_EQ(before.shape("observation.images.wrist.count"), (Shape{1}));
  EXPECT_EQ(before.shape("observation.images.front.mean"), (Shape{3, 1, 1}));
  const serialization::SafetensorsFile after(
      directory_ / "policy_postprocessor_step_0_unnormalizer_processor.safetensors");
  EXPECT_EQ(after.shape("observation.images.front.count"), (Shape{1}));
}

at::Tensor preprocessed_state(const Pipeline& pipeline) {
  dataset::Batch batch;
  batch.tensors["observation.state"] = at::full({1, 4}, 2.0F);
  pipeline.apply(batch);
  return batch.at("observation.state");
}

TEST_F(PipelineFiles, KeepTheirStatisticsOnResumeAndTakeTheNewOnesForFineTuning) {
  dataset::DatasetStats other = stats_of("toy_state");
  other["observation.state"]["mean"] = other["observation.state"]["mean"] + 1.0;
  const PolicyProcessors resumed = load_policy_processors(kCheckpoint, state_settings(), nullptr);
  const PolicyProcessors tuned = load_policy_processors(kCheckpoint, state_settings(), &other);
  const PolicyProcessors fresh = make_policy_processors(state_settings(), other);
  EXPECT_FALSE(
      preprocessed_state(resumed.preprocessor).equal(preprocessed_state(tuned.preprocessor)));
  EXPECT_TRUE(preprocessed_state(tuned.preprocessor).equal(preprocessed_state(fresh.preprocessor)));
}

TEST_F(PipelineFiles, TakeModesNamesAndFeaturesFromTheRun) {
  PolicyProcessorSettings settings = state_settings();
  settings.normalization = {{"STATE", NormalizationMode::kIdentity}};
  settings.rename_map = {{"observation.joints", "observation.state"}};
  const PolicyProcessors processors = load_policy_processors(kCheckpoint, settings, nullptr);
  dataset::Batch batch;
  batch.tensors["observation.joints"] = at::full({1, 4}, 2.0F);
  processors.preprocessor.apply(batch);
  EXPECT_TRUE(batch.at("observation.state").equal(at::full({1, 4}, 2.0F)));
  EXPECT_FALSE(batch.contains("observation.joints"));
}

TEST_F(PipelineFiles, NameAStepThatIsNotKnown) {
  copy_checkpoint();
  edit("policy_preprocessor.json", "to_batch_processor", "tokenizer_processor");
  EXPECT_THAT(
      load_error("policy_preprocessor"),
      HasSubstr("policy_preprocessor.json: step 1 (tokenizer_processor) is not known here"));
}

TEST_F(PipelineFiles, NameAStateFileThatIsMissing) {
  copy_checkpoint();
  fs::remove(directory_ / "policy_preprocessor_step_3_normalizer_processor.safetensors");
  EXPECT_THAT(load_error("policy_preprocessor"),
              testing::AllOf(HasSubstr("step 3 (normalizer_processor) needs its state file"),
                             HasSubstr("which is missing")));
}

TEST_F(PipelineFiles, DoNotReadAStateFileOutsideTheirFolder) {
  copy_checkpoint();
  edit("policy_preprocessor.json", "\"state_file\": \"", "\"state_file\": \"../");
  EXPECT_THAT(load_error("policy_preprocessor"), HasSubstr("has a state_file outside its folder"));
}

TEST_F(PipelineFiles, NameAFieldThatIsUnknownOrWrong) {
  copy_checkpoint();
  edit("policy_preprocessor.json", "\"eps\": 1e-08", "\"eps\": 1e-08, \"clip\": true");
  EXPECT_THAT(load_error("policy_preprocessor"),
              HasSubstr("step 3 (normalizer_processor) has an unknown field clip"));
  edit("policy_preprocessor.json", "\"eps\": 1e-08, \"clip\": true", "\"eps\": \"small\"");
  EXPECT_THAT(load_error("policy_preprocessor"),
              HasSubstr("step 3 (normalizer_processor) has a wrong value: "));
}

TEST_F(PipelineFiles, NameAStepThatTheRunSetsButTheFileLacks) {
  copy_checkpoint();
  edit("policy_preprocessor.json", "rename_observations_processor", "to_batch_processor");
  edit("policy_preprocessor.json", "\"rename_map\": {}", "");
  StepOverrides overrides;
  overrides["rename_observations_processor"];
  EXPECT_THAT(load_error("policy_preprocessor", overrides),
              HasSubstr("has no step rename_observations_processor, which this run has to set"));
}

TEST_F(PipelineFiles, RefuseAFileWithoutSteps) {
  write_file_atomic(directory_ / "policy_preprocessor.json", "[1]");
  EXPECT_THAT(load_error("policy_preprocessor"),
              HasSubstr("expected an object with a list called steps"));
  write_file_atomic(directory_ / "policy_preprocessor.json", R"({"steps": [{"class": "a.B"}]})");
  EXPECT_THAT(load_error("policy_preprocessor"), HasSubstr("step 0 has no registry_name"));
  EXPECT_THAT(load_error("missing"), HasSubstr("missing.json: cannot open"));
}

}  // namespace
}  // namespace lerobot::processor
