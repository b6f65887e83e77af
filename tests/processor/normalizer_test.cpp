#include "lerobot/processor/normalizer.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/dataset/stats.h"
#include "lerobot/processor/policy_processors.h"
#include "lerobot/processor/steps.h"
#include "tests/support/error_of.h"

namespace lerobot::processor {
namespace {

using config::FeatureType;
using config::NormalizationMode;
using testing::HasSubstr;

// Statistics of three dimensions, the last one constant.
dataset::FeatureStats three_dimensions() {
  return {{"mean", at::tensor({0.5F, 1.0F, 0.5F})}, {"std", at::tensor({0.25F, 2.0F, 0.0F})},
          {"min", at::tensor({0.0F, -2.0F, 0.5F})}, {"max", at::tensor({1.0F, 4.0F, 0.5F})},
          {"q01", at::tensor({0.1F, -1.9F, 0.5F})}, {"q99", at::tensor({0.9F, 3.9F, 0.5F})},
          {"q10", at::tensor({0.2F, -1.0F, 0.5F})}, {"q90", at::tensor({0.8F, 3.0F, 0.5F})}};
}

NormalizerSettings action_settings(NormalizationMode mode) {
  NormalizerSettings settings;
  settings.features = {{"action", {FeatureType::kAction, {3}}}};
  settings.modes = {{"ACTION", mode}};
  return settings;
}

at::Tensor run(NormalizerStep::Direction direction, NormalizationMode mode, const at::Tensor& x) {
  const NormalizerStep step(direction, action_settings(mode), {{"action", three_dimensions()}});
  dataset::Batch batch;
  batch.tensors["action"] = x;
  step.apply(batch);
  return batch.at("action");
}

struct ModeCase {
  NormalizationMode mode;
  std::vector<float> normalized;    // by LeRobot 0.6.1
  std::vector<float> unnormalized;  // by LeRobot 0.6.1
};

class NormalizerModes : public testing::TestWithParam<ModeCase> {};

TEST_P(NormalizerModes, GiveLeRobotsNumbersAlsoWhereADimensionIsConstant) {
  const ModeCase& c = GetParam();
  const at::Tensor x = at::tensor({1.0F, -2.0F, 0.5F, 0.25F, 3.0F, 0.5F}).view({2, 3});
  const at::Tensor before = x.clone();
  using Direction = NormalizerStep::Direction;
  EXPECT_TRUE(run(Direction::kNormalize, c.mode, x).flatten().equal(at::tensor(c.normalized)));
  EXPECT_TRUE(run(Direction::kUnnormalize, c.mode, x).flatten().equal(at::tensor(c.unnormalized)));
  EXPECT_TRUE(x.equal(before)) << "the input's own memory must not change";
}

INSTANTIATE_TEST_SUITE_P(
    All, NormalizerModes,
    testing::Values(ModeCase{NormalizationMode::kMeanStd,
                             {2.0F, -1.5F, 0.0F, -1.0F, 1.0F, 0.0F},
                             {0.75F, -3.0F, 0.5F, 0.5625F, 7.0F, 0.5F}},
                    ModeCase{NormalizationMode::kMinMax,
                             {1.0F, -1.0F, -1.0F, -0.5F, 0.6666666269302368F, -1.0F},
                             {1.0F, -5.0F, 0.5F, 0.625F, 10.0F, 0.5F}},
                    ModeCase{
                        NormalizationMode::kQuantiles,
                        {1.25F, -1.034482717514038F, -1.0F, -0.625F, 0.6896551847457886F, -1.0F},
                        {0.8999999761581421F, -4.800000190734863F, 0.5F, 0.5999999642372131F,
                         9.700000762939453F, 0.5F}},
                    ModeCase{NormalizationMode::kQuantile10,
                             {1.6666665077209473F, -1.5F, -1.0F, -0.8333333730697632F, 1.0F, -1.0F},
                             {0.800000011920929F, -3.0F, 0.5F, 0.574999988079071F, 7.0F, 0.5F}},
                    ModeCase{NormalizationMode::kIdentity,
                             {1.0F, -2.0F, 0.5F, 0.25F, 3.0F, 0.5F},
                             {1.0F, -2.0F, 0.5F, 0.25F, 3.0F, 0.5F}}));

TEST(Normalizer, WarnsOnceAboutAConstantDimensionByNumber) {
  testing::internal::CaptureStderr();
  const NormalizerStep step(NormalizerStep::Direction::kNormalize,
                            action_settings(NormalizationMode::kMeanStd),
                            {{"action", three_dimensions()}});
  dataset::Batch batch;
  batch.tensors["action"] = at::ones({1, 3});
  step.apply(batch);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("feature action: constant in the dataset (std is 0) in dimension 2:"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1);
  EXPECT_TRUE(batch.at("action").isfinite().all().item<bool>());
}

std::string construction_error(NormalizationMode mode, dataset::DatasetStats statistics) {
  return error_of([&] {
    NormalizerStep(NormalizerStep::Direction::kNormalize, action_settings(mode), statistics);
  });
}

TEST(Normalizer, NamesTheFeatureAndTheStatisticThatIsMissing) {
  EXPECT_THAT(construction_error(NormalizationMode::kMeanStd, {}),
              HasSubstr("feature action is normalised with MEAN_STD, but there are no statistics"));
  dataset::FeatureStats statistics = three_dimensions();
  statistics.erase("q99");
  EXPECT_THAT(
      construction_error(NormalizationMode::kQuantiles, {{"action", statistics}}),
      HasSubstr("feature action is normalised with QUANTILES, which needs the statistic q99"));
}

TEST(Normalizer, RefusesStatisticsThatAreNotFiniteOrDoNotFit) {
  dataset::FeatureStats statistics = three_dimensions();
  statistics["mean"] = at::tensor({0.0F, std::numeric_limits<float>::quiet_NaN(), 0.0F});
  EXPECT_THAT(construction_error(NormalizationMode::kMeanStd, {{"action", statistics}}),
              HasSubstr("statistic mean of feature action is nan in dimension 1"));
  statistics["mean"] = at::zeros({4});
  EXPECT_THAT(construction_error(NormalizationMode::kMeanStd, {{"action", statistics}}),
              HasSubstr("statistic mean of feature action has shape [4], which does not fit the "
                        "feature's shape [3]"));
}

// --- The whole preprocessor ----------------------------------------------------------------------

class PipelineOracle : public testing::Test {
 protected:
  static std::filesystem::path data() { return LEROBOT_TEST_DATA; }

  const serialization::SafetensorsFile file_{data() / "oracles/pipeline_toy_h264.safetensors"};

  dataset::Batch raw() const {
    dataset::Batch batch;
    for (const std::string& name : file_.names()) {
      if (!name.starts_with("raw/")) continue;
      const at::Tensor value = file_.tensor(name);
      batch.tensors[name.substr(4)] = name.ends_with("_is_pad") ? value.to(at::kBool) : value;
    }
    return batch;
  }
};

/// toy_h264's own, with ImageNet's mean and std for its cameras.
dataset::DatasetStats oracle_statistics(const std::filesystem::path& data) {
  const auto metadata = dataset::DatasetMetadata::open(data / "datasets/toy_h264", "toy_h264");
  dataset::DatasetStats statistics = metadata->stats();
  dataset::use_imagenet_stats(statistics, metadata->info());
  return statistics;
}

TEST_F(PipelineOracle, IsReproducedFromBytesInOnePass) {
  PolicyProcessorSettings settings;
  settings.input_features = {{"observation.state", {FeatureType::kState, {4}}},
                             {"observation.images.front", {FeatureType::kVisual, {3, 96, 96}}},
                             {"observation.images.wrist", {FeatureType::kVisual, {3, 96, 96}}}};
  settings.output_features = {{"action", {FeatureType::kAction, {3}}}};
  settings.normalization = {{"VISUAL", NormalizationMode::kMeanStd},
                            {"STATE", NormalizationMode::kMeanStd},
                            {"ACTION", NormalizationMode::kMeanStd}};
  const PolicyProcessors processors = make_policy_processors(settings, oracle_statistics(data()));

  dataset::Batch batch = raw();
  processors.preprocessor.apply(batch);
  for (const std::string& name : file_.names()) {
    if (!name.starts_with("proc/")) continue;
    const at::Tensor expected = file_.tensor(name);
    const at::Tensor& actual = batch.at(name.substr(5));
    EXPECT_TRUE(actual.to(expected.scalar_type()).equal(expected)) << name;
  }

  dataset::Batch two_steps = raw();
  for (const char* camera : {"observation.images.front", "observation.images.wrist"})
    two_steps.tensors[camera] = image_to_float(two_steps.at(camera));
  processors.preprocessor.apply(two_steps);
  EXPECT_TRUE(two_steps.at("observation.images.front").equal(batch.at("observation.images.front")));

  dataset::Batch output;
  output.tensors["action"] = file_.tensor("post_in");
  processors.postprocessor.apply(output);
  EXPECT_TRUE(output.at("action").equal(file_.tensor("post_out")));
}

TEST(Normalizer, TurnsACameraWithoutAModeIntoFractions) {
  NormalizerSettings settings;
  settings.features = {{"observation.image", {FeatureType::kVisual, {3, 2, 2}}}};
  const NormalizerStep step(NormalizerStep::Direction::kNormalize, settings, {});
  dataset::Batch batch;
  const at::Tensor pixels = at::arange(24, at::kByte).view({2, 3, 2, 2});
  batch.tensors["observation.image"] = pixels;
  step.apply(batch);
  EXPECT_TRUE(batch.at("observation.image").equal(pixels.to(at::kFloat) / 255.0));
}

// --- Small steps
// ----------------------------------------------------------------------------------

TEST(RenameStep, CanSwapNamesAndRefusesToMergeThem) {
  dataset::Batch batch;
  batch.tensors["observation.a"] = at::full({1}, 1.0F);
  batch.tensors["observation.b"] = at::full({1}, 2.0F);
  RenameStep({{"observation.a", "observation.b"}, {"observation.b", "observation.a"}}).apply(batch);
  EXPECT_EQ(batch.at("observation.a").item<float>(), 2.0F);
  try {
    const std::map<std::string, std::string> merging{{"observation.a", "observation.b"}};
    RenameStep(merging).apply(batch);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rename_map: two observations would be called observation.b");
  }
}

TEST(ToBatchStep, AddsADimensionToSingleItemsOnly) {
  dataset::Batch batch;
  batch.tensors["observation.state"] = at::zeros({4});
  batch.tensors["observation.images.front"] = at::zeros({3, 8, 8});
  batch.tensors["index"] = at::zeros({}, at::kLong);
  batch.tensors["frame_index"] = at::zeros({2}, at::kLong);
  ToBatchStep().apply(batch);
  ToBatchStep().apply(batch);
  EXPECT_EQ(batch.at("observation.state").dim(), 2);
  EXPECT_EQ(batch.at("observation.images.front").dim(), 4);
  EXPECT_EQ(batch.at("index").dim(), 1);
  EXPECT_EQ(batch.at("frame_index").dim(), 1);
}

TEST(DeviceStep, CastsFloatingTypesAndNamesWhatItDoesNotKnow) {
  dataset::Batch batch;
  batch.tensors["observation.state"] = at::zeros({1, 4});
  batch.tensors["index"] = at::zeros({1}, at::kLong);
  DeviceStep("cpu", "bfloat16").apply(batch);
  EXPECT_EQ(batch.at("observation.state").scalar_type(), at::kBFloat16);
  EXPECT_EQ(batch.at("index").scalar_type(), at::kLong);
  EXPECT_EQ(DeviceStep("cuda:1", std::nullopt).config()["device"], "cuda");
  EXPECT_THROW(DeviceStep("gpu", std::nullopt), Error);
  EXPECT_THROW(DeviceStep("cpu", "float8"), Error);
}

}  // namespace
}  // namespace lerobot::processor
