#include "lerobot/policy/adapter.h"

#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/nn/attention.h"
#include "tests/policy/act_oracle.h"

namespace lerobot::policy {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

fs::path lerobots_adapter() {
  return fs::path(LEROBOT_TEST_DATA) / "checkpoints/state_peft/000006/pretrained_model";
}

class Adapter : public testing::Test {
 protected:
  Adapter() {
    config_ = config::read_policy_config(oracle("act_prenorm_env") / "config.json", policy_types());
    config_->pretrained_path = "some/base";
    seed_torch(1);
    policy_ = make_policy(*config_, false);
  }

  AdapterConfig adapt_with(const Json& targets, const std::vector<std::string>& full = {}) {
    config::PeftConfig options;
    options.r = 2;
    options.target_modules = targets;
    options.full_training_modules = full;
    AdapterConfig adapter = new_adapter(options, *policy_);
    adapt(*policy_, adapter);
    return adapter;
  }

  std::vector<std::string> trainable() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : policy_->module().trainable_parameters())
      names.push_back(name);
    return names;
  }

  /// The trainable tensors' names in the adapter's file.
  std::vector<std::string> saved() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : policy_->module().state_dict())
      if (const auto saved = adapter_tensor_name(name)) names.push_back(*saved);
    return names;
  }

  std::shared_ptr<config::PolicyConfig> config_;
  std::unique_ptr<Policy> policy_;
};

TEST_F(Adapter, OfALinearLayerHasPeftsNames) {
  adapt_with({"decoder.layers.0.linear1"});
  EXPECT_THAT(trainable(),
              ElementsAre("base_model.model.model.decoder.layers.0.linear1.lora_A.default.weight",
                          "base_model.model.model.decoder.layers.0.linear1.lora_B.default.weight"));
  EXPECT_THAT(saved(),
              ElementsAre("base_model.model.model.decoder.layers.0.linear1.lora_A.weight",
                          "base_model.model.model.decoder.layers.0.linear1.lora_B.weight"));
}

TEST_F(Adapter, OfAttentionCoversItsOutputProjection) {
  adapt_with({"decoder.layers.0.self_attn"});
  EXPECT_THAT(
      saved(),
      ElementsAre(
          "base_model.model.model.decoder.layers.0.self_attn.base_layer.out_proj.lora_A.weight",
          "base_model.model.model.decoder.layers.0.self_attn.base_layer.out_proj.lora_B.weight",
          "base_model.model.model.decoder.layers.0.self_attn.lora_A.weight",
          "base_model.model.model.decoder.layers.0.self_attn.lora_B.weight"));
}

TEST_F(Adapter, SavesModulesThatAreTrainedWholeUnderTheirPlainNames) {
  adapt_with({"linear1"}, {"action_head"});
  const auto names = saved();
  EXPECT_THAT(names, testing::IsSupersetOf({"base_model.model.model.action_head.weight",
                                            "base_model.model.model.action_head.bias"}));
  EXPECT_THAT(
      trainable(),
      testing::Contains("base_model.model.model.action_head.modules_to_save.default.weight"));
}

TEST_F(Adapter, TensorsHaveTheNamesOfLeRobotsFile) {
  const auto config =
      config::read_policy_config(lerobots_adapter() / "config.json", policy_types());
  policy_ = make_policy(*config, false);
  AdapterConfig adapter = read_adapter_config(lerobots_adapter());
  adapt(*policy_, adapter);
  const serialization::SafetensorsFile file(lerobots_adapter() / "adapter_model.safetensors");
  EXPECT_THAT(saved(), testing::UnorderedElementsAreArray(file.names()));
}

TEST_F(Adapter, ChangesNothingUntilItIsTrained) {
  const auto inputs =
      serialization::SafetensorsFile(oracle("act_prenorm_env") / "inputs.safetensors").all();
  dataset::Batch batch;
  for (const auto& [name, tensor] : inputs) batch.tensors[name] = tensor;
  const at::Tensor before = policy_->predict_action_chunk(batch);
  adapt_with({"linear1", "self_attn", "multihead_attn"});
  EXPECT_TRUE(policy_->predict_action_chunk(batch).equal(before));
}

TEST_F(Adapter, OfAttentionActsThroughItsWeights) {
  seed_torch(2);
  nn::MultiheadAttention attention(8, 2, 0.0);
  const at::Tensor x = at::zeros({3, 2, 8}).normal_();
  attention.add_lora({.r = 2, .alpha = 4});
  nn::NamedTensors tensors = attention.named_parameters();
  std::map<std::string, at::Tensor> by_name(tensors.begin(), tensors.end());
  const c10::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors)
    if (name.find("lora_B") != name.npos) tensor.normal_();
  const at::Tensor adapted = attention(x, x, x);
  // The same attention whose frozen weights are W + 2 B A, and W + 4 B A at the output, to which
  // peft adds its update twice.
  const auto merge = [&](const std::string& weight, const std::string& adapter, double factor) {
    by_name.at(weight).add_(by_name.at(adapter + "lora_B.default.weight")
                                .matmul(by_name.at(adapter + "lora_A.default.weight")),
                            factor);
  };
  merge("base_layer.in_proj_weight", "", 2.0);
  merge("base_layer.out_proj.base_layer.weight", "base_layer.out_proj.", 4.0);
  for (auto& [name, tensor] : tensors)
    if (name.find("lora_B") != name.npos) tensor.zero_();
  EXPECT_LT((attention(x, x, x) - adapted).abs().max().item().toDouble(), 1e-5);
  EXPECT_GT(adapted.abs().max().item().toDouble(), 0.1);
}

TEST_F(Adapter, OfTheOutputProjectionAloneHasNoEffectAsInPeft) {
  nn::MultiheadAttention attention(8, 2, 0.0);
  const at::Tensor x = at::zeros({3, 2, 8}).normal_();
  const c10::NoGradGuard no_grad;
  const at::Tensor before = attention(x, x, x);
  for (const auto& [name, module] : attention.named_modules())
    if (name == "out_proj") dynamic_cast<nn::Linear&>(*module).add_lora({.r = 2});
  for (auto& [name, tensor] : attention.named_parameters())
    if (name.find("lora") != name.npos) tensor.normal_();
  EXPECT_TRUE(attention(x, x, x).equal(before));
}

TEST_F(Adapter, TakesRegularExpressionsForWholeNames) {
  adapt_with(".*encoder\\.layers\\.[0-9]+\\.linear[12]");
  for (const std::string& name : trainable()) EXPECT_THAT(name, HasSubstr("encoder.layers."));
  EXPECT_FALSE(trainable().empty());
}

TEST_F(Adapter, AllLinearBecomesTheNamesOfTheLinearLayers) {
  const AdapterConfig adapter = adapt_with("all-linear");
  const auto names = std::get<std::vector<std::string>>(adapter.target_modules);
  EXPECT_THAT(names, testing::IsSupersetOf({"model.action_head", "model.encoder.layers.0.linear1",
                                            "model.encoder.layers.0.self_attn.out_proj"}));
  EXPECT_EQ(adapter.document["target_modules"], Json(names));
}

TEST_F(Adapter, IsRefusedForNamesThatDoNotExist) {
  EXPECT_THAT(error_of([&] { adapt_with({"q_proj"}); }),
              AllOf(HasSubstr("q_proj"), HasSubstr("linear1"), HasSubstr("self_attn")));
  EXPECT_THAT(error_of([&] { adapt_with({"linear1", "liner2"}); }), HasSubstr("has no liner2"));
  EXPECT_THAT(error_of([&] { adapt_with({"linear1"}, {"head_of_action"}); }),
              AllOf(HasSubstr("head_of_action"), HasSubstr("action_head")));
  EXPECT_THAT(error_of([&] { adapt_with("linear1"); }), HasSubstr("\"linear1\" is not found"));
  EXPECT_THAT(error_of([&] { adapt_with("linear1("); }), HasSubstr("not a regular expression"));
}

TEST_F(Adapter, IsRefusedForLayersThatCannotHaveOne) {
  EXPECT_THAT(error_of([&] { adapt_with({"norm1"}); }),
              AllOf(HasSubstr("LayerNorm"), HasSubstr("full_training_modules")));
  EXPECT_THAT(error_of([&] {
                adapt_with({"self_attn", "out_proj"});
              }),
              HasSubstr("name one of them only"));
  EXPECT_THAT(error_of([&] { adapt_with({"linear1"}, {"encoder.layers"}); }),
              HasSubstr("a list of modules"));
}

TEST_F(Adapter, SaysWhyPlainTextsAndClaimedModulesMatchNothing) {
  EXPECT_THAT(error_of([&] { adapt_with("linear1"); }),
              HasSubstr("a regular expression for whole"));
  EXPECT_THAT(error_of([&] { adapt_with({"linear1"}, {"linear1"}); }),
              HasSubstr("is trained whole by full_training_modules"));
}

TEST_F(Adapter, ThatCannotHaveAnyEffectIsRefused) {
  EXPECT_THAT(error_of([&] { adapt_with({"out_proj"}); }),
              AllOf(HasSubstr("has no effect"), HasSubstr("Target self_attn")));
}

TEST_F(Adapter, OfAnExpressionIsRecordedByTheNamesOfItsLayers) {
  // peft would refuse the dropout beside them.
  const AdapterConfig adapter = adapt_with(".*decoder.layers.0.(linear1|dropout1)");
  EXPECT_EQ(adapter.document["target_modules"], Json({"model.decoder.layers.0.linear1"}));
}

TEST_F(Adapter, LeavesThePolicyAloneWhenItIsRefused) {
  const auto before = policy_->module().named_parameters();
  EXPECT_NE(error_of([&] { adapt_with({"linear1", "norm1"}); }), "");
  EXPECT_NE(error_of([&] { adapt_with({"linear1"}, {"nothing"}); }), "");
  const auto after = policy_->module().trainable_parameters();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].first, before[i].first);
}

TEST_F(Adapter, ModulesTrainedWholeGetNoAdapter) {
  adapt_with("all-linear", {"action_head"});
  for (const std::string& name : trainable()) {
    if (name.find("action_head") == name.npos) continue;
    EXPECT_THAT(name, HasSubstr("modules_to_save"));
  }
}

TEST_F(Adapter, ConfigurationHasTheKeysOfPefts) {
  const Json ours = adapt_with({"linear1"}).document;
  const Json theirs = read_json_file(lerobots_adapter() / "adapter_config.json");
  std::vector<std::string> our_keys, their_keys;
  for (const auto& [key, value] : ours.items()) our_keys.push_back(key);
  for (const auto& [key, value] : theirs.items()) their_keys.push_back(key);
  EXPECT_EQ(our_keys, their_keys);
  EXPECT_EQ(ours["auto_mapping"], theirs["auto_mapping"]);
  EXPECT_EQ(ours["base_model_name_or_path"], "some/base");
  EXPECT_EQ(ours["lora_alpha"], 8);
}

class AdapterFile : public testing::Test {
 protected:
  AdapterFile() { fs::create_directories(folder_); }
  ~AdapterFile() override { fs::remove_all(folder_); }

  /// Reading LeRobot's file with one setting changed.
  std::string refusal(const std::string& key, const Json& value) const {
    Json content = read_json_file(lerobots_adapter() / "adapter_config.json");
    content[key] = value;
    write_file_atomic(folder_ / "adapter_config.json", to_python_json(content, 2));
    return error_of([&] { read_adapter_config(folder_); });
  }

  const fs::path folder_ = fs::temp_directory_path() / fmt::format("adapter_file.{}", ::getpid());
};

TEST_F(AdapterFile, OfAnotherKindIsRefusedByName) {
  EXPECT_THAT(refusal("peft_type", "IA3"), HasSubstr("IA3"));
  for (const auto& [key, value] : std::map<std::string, Json>{{"use_dora", true},
                                                              {"use_rslora", true},
                                                              {"lora_dropout", 0.1},
                                                              {"bias", "all"},
                                                              {"rank_pattern", {{"linear1", 8}}},
                                                              {"exclude_modules", "x"},
                                                              {"init_lora_weights", "eva"}})
    EXPECT_THAT(refusal(key, value), HasSubstr(key));
}

TEST_F(AdapterFile, WithWrongValuesIsRefused) {
  EXPECT_THAT(refusal("r", 0), HasSubstr("r is 0"));
  EXPECT_THAT(refusal("r", "four"), HasSubstr("r is"));
  EXPECT_THAT(refusal("lora_alpha", -1), HasSubstr("lora_alpha"));
  EXPECT_THAT(refusal("target_modules", {1, 2}), HasSubstr("target_modules"));
  EXPECT_THAT(refusal("modules_to_save", "action_head"), HasSubstr("modules_to_save"));
  EXPECT_THAT(refusal("base_model_name_or_path", nullptr), HasSubstr("base_model_name_or_path"));
  EXPECT_THAT(refusal("r", 4), IsEmpty());
}

TEST_F(AdapterFile, ThatIsMissingMeansThatTheFolderHoldsNoAdapter) {
  EXPECT_THAT(error_of([&] { read_adapter_config(folder_); }),
              AllOf(HasSubstr("adapter_config.json"), HasSubstr("--policy.use_peft=false")));
}

}  // namespace
}  // namespace lerobot::policy
