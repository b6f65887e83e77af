#include "lerobot/policy/registry.h"

#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "tests/policy/act_oracle.h"

namespace lerobot::policy {
namespace {

using testing::HasSubstr;

class PolicyWeights : public testing::Test {
 protected:
  ~PolicyWeights() override { fs::remove(file_); }

  serialization::NamedTensors saved_ =
      serialization::SafetensorsFile(oracle("act_prenorm_env") / "init.safetensors").all();
  const fs::path file_ =
      fs::temp_directory_path() / fmt::format("policy_weights.{}.safetensors", ::getpid());

  std::unique_ptr<Policy> other_policy() {
    const auto config =
        config::read_policy_config(oracle("act_prenorm_env") / "config.json", policy_types());
    seed_torch(1);
    return make_policy(*config, false);
  }
};

TEST_F(PolicyWeights, AreLoadedByName) {
  const auto policy = other_policy();
  load_policy_weights(*policy, oracle("act_prenorm_env") / "init.safetensors");
  std::map<std::string, at::Tensor> expected(saved_.begin(), saved_.end());
  for (const auto& [name, tensor] : policy->module().state_dict())
    EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
}

TEST_F(PolicyWeights, MayLackNamesAndHaveOthersWithAWarning) {
  const at::Tensor kept = saved_[1].second;
  saved_[0].first = "model.no_such_layer.weight";
  serialization::save_safetensors(file_, saved_);
  const auto policy = other_policy();
  testing::internal::CaptureStderr();
  load_policy_weights(*policy, file_);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("lacks 1 of the policy's tensors"));
  EXPECT_THAT(log, HasSubstr("does not have: model.no_such_layer.weight"));
  for (const auto& [name, tensor] : policy->module().state_dict()) {
    if (name == saved_[1].first) {
      EXPECT_TRUE(tensor.equal(kept));
    }
  }
}

TEST_F(PolicyWeights, OfAnotherShapeAreRefusedBeforeAnythingChanges) {
  for (auto& [name, tensor] : saved_)
    if (name == "model.action_head.weight") tensor = at::zeros({7, 32});
  serialization::save_safetensors(file_, saved_);
  const auto policy = other_policy();
  const at::Tensor before = policy->module().state_dict()[1].second.detach().clone();
  try {
    load_policy_weights(*policy, file_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor model.action_head.weight has shape [7, 32], but "
                                        "this policy's configuration needs [3, 32]"));
  }
  EXPECT_TRUE(policy->module().state_dict()[1].second.equal(before));
}

TEST_F(PolicyWeights, OfSomethingElseAltogetherAreRefused) {
  serialization::save_safetensors(file_, {{"weight", at::zeros({1})}});
  const auto policy = other_policy();
  try {
    load_policy_weights(*policy, file_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds none of the policy's"));
  }
}

TEST(PolicyRegistry, KnowsActByName) {
  ASSERT_NE(config::find_policy_type(policy_types(), "act"), nullptr);
  EXPECT_EQ(config::find_policy_type(policy_types(), "act")->make()->type(), "act");
}

TEST(PolicyRegistry, NamesADeviceThatIsNone) {
  const auto config =
      config::read_policy_config(oracle("act_prenorm_env") / "config.json", policy_types());
  config->device = "tpuu";
  try {
    make_policy(*config, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown device \"tpuu\""));
  }
}

TEST(PolicyRegistry, LoadsTheProcessorsOfACheckpoint) {
  const auto directory =
      std::filesystem::path(LEROBOT_TEST_DATA) / "checkpoints/state_single/000040/pretrained_model";
  const auto config = config::read_policy_config(directory / "config.json", policy_types());
  const auto processors = load_processors(*config, directory, {}, nullptr);
  EXPECT_EQ(processors.preprocessor.steps().size(), 4);
  EXPECT_EQ(processors.postprocessor.steps().size(), 2);
  EXPECT_THROW(make_processors(*config, {}), Error);
}

}  // namespace
}  // namespace lerobot::policy
