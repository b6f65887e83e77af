#include "lerobot/distributed/wrap_units.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/distributed/sharded_precision.h"
#include "tests/distributed/toy_policy.h"
#include "tests/support/error_of.h"

namespace lerobot::distributed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names_of(const WrapUnits& chosen) {
  std::vector<std::string> names;
  for (const WrapUnit& unit : chosen.units) names.push_back(unit.name);
  return names;
}

std::vector<std::string> parameters_of(const std::vector<UnitParameter>& parameters) {
  std::vector<std::string> names;
  for (const UnitParameter& parameter : parameters)
    for (const std::string& name : parameter.names) names.push_back(name);
  return names;
}

WrapUnits choose(ToyPolicy& policy, const config::FsdpConfig& options = {}) {
  return choose_wrap_units(policy.module(), policy.wrap_modules(), options, false);
}

config::FsdpConfig by_class(std::vector<std::string> classes) {
  config::FsdpConfig options;
  options.wrap_modules = std::move(classes);
  return options;
}

config::FsdpConfig by_size(std::int64_t min_num_params) {
  config::FsdpConfig options;
  options.min_num_params = min_num_params;
  return options;
}

config::FsdpConfig without(const std::string& ignored_modules) {
  config::FsdpConfig options;
  options.ignored_modules = ignored_modules;
  return options;
}

TEST(WrapUnits, AreThePolicysOwnUnlessOthersAreAsked) {
  ToyPolicy policy;
  const WrapUnits chosen = choose(policy);
  EXPECT_THAT(names_of(chosen), ElementsAre("", "net.blocks.0", "net.blocks.1", "net.blocks.2"));
  EXPECT_THAT(parameters_of(chosen.units[0].parameters),
              ElementsAre("net.unused", "net.head.weight", "net.head.bias"));
  EXPECT_THAT(parameters_of(chosen.units[1].parameters),
              ElementsAre("net.blocks.0.scale", "net.blocks.0.up.weight", "net.blocks.0.up.bias",
                          "net.blocks.0.down.weight", "net.blocks.0.down.bias"));
}

TEST(WrapUnits, SingleNumbersStayWhole) {
  ToyPolicy policy;
  EXPECT_THAT(parameters_of(choose(policy).whole), ElementsAre("net.temperature"));
}

TEST(WrapUnits, OfNestedUnitsTheInnerOneHasTheParameters) {
  ToyPolicy policy;
  const WrapUnits chosen = choose(policy, by_class({"ToyNet", "ToyBlock"}));
  EXPECT_THAT(names_of(chosen),
              ElementsAre("", "net", "net.blocks.0", "net.blocks.1", "net.blocks.2"));
  EXPECT_TRUE(chosen.units[0].parameters.empty());
}

TEST(WrapUnits, BySizeAreTheCallableModulesAboveIt) {
  ToyPolicy policy;
  // A block has 70 + 10 + 70 + 7 + 1 parameters, a linear layer at most 80.
  EXPECT_THAT(names_of(choose(policy, by_size(157))),
              ElementsAre("", "net", "net.blocks.0", "net.blocks.1", "net.blocks.2"));
  EXPECT_THAT(names_of(choose(policy, by_size(158))), ElementsAre("", "net"));
  EXPECT_THAT(error_of([&] { choose(policy, by_size(1000000)); }),
              HasSubstr("no part of the model has more parameters"));
}

TEST(WrapUnits, AnUnknownClassIsNamedBesideThoseThatThereAre) {
  ToyPolicy policy;
  EXPECT_THAT(
      error_of([&] { choose(policy, by_class({"Nope"})); }),
      HasSubstr("could not find the class Nope in the model, which has Linear, ToyBlock, ToyNet"));
}

TEST(WrapUnits, AClassThatIsNeverCalledIsRefused) {
  ToyPolicy policy;
  EXPECT_THAT(error_of([&] { choose(policy, by_class({"ModuleList"})); }),
              HasSubstr("ModuleList (net.blocks) only holds other modules"));
}

TEST(WrapUnits, WithoutADeclarationOneMustBePassed) {
  ToyPolicy policy;
  EXPECT_THAT(error_of([&] { choose_wrap_units(policy.module(), {}, {}, false); }),
              HasSubstr("--accelerator.fsdp.wrap_modules"));
}

TEST(WrapUnits, IgnoredModulesStayWholeWithAllBelow) {
  ToyPolicy policy;
  const WrapUnits chosen = choose(policy, without(R"(net\.blocks\.1|.*\.head)"));
  EXPECT_THAT(names_of(chosen), ElementsAre("", "net.blocks.0", "net.blocks.2"));
  EXPECT_THAT(parameters_of(chosen.whole),
              ElementsAre("net.temperature", "net.blocks.1.scale", "net.blocks.1.up.weight",
                          "net.blocks.1.up.bias", "net.blocks.1.down.weight",
                          "net.blocks.1.down.bias", "net.head.weight", "net.head.bias"));
  EXPECT_THAT(error_of([&] { choose(policy, without("blocks")); }), HasSubstr("matches no module"));
  EXPECT_THAT(error_of([&] { choose(policy, without("(")); }),
              HasSubstr("is not a regular expression"));
}

TEST(WrapUnits, TiedWeightsInOneUnitAreOneParameterWithTwoNames) {
  ToyPolicy policy;
  policy.net().tie(policy.net().head_weight());
  const auto root = choose(policy).units[0].parameters;
  const auto tied = std::find_if(root.begin(), root.end(),
                                 [](const UnitParameter& p) { return p.names.size() == 2; });
  ASSERT_NE(tied, root.end());
  EXPECT_THAT(tied->names, ElementsAre("net.tied", "net.head.weight"));
}

TEST(WrapUnits, TiedWeightsInTwoUnitsAreRefusedByName) {
  ToyPolicy policy;
  policy.net().tie(policy.net().head_weight());
  EXPECT_THAT(
      error_of([&] { choose(policy, by_class({"Linear"})); }),
      HasSubstr("the parameters net.tied (in the root unit) and net.head.weight (in unit net.head) "
                "are tied"));
}

TEST(WrapUnits, TrainableParametersOfAUnitMustHaveOneType) {
  ToyPolicy policy;
  policy.net().head_weight().set_data(policy.net().head_weight().to(at::kBFloat16));
  EXPECT_THAT(error_of([&] { choose(policy); }),
              HasSubstr("net.unused (Float) and net.head.weight (BFloat16)"));
  choose_wrap_units(policy.module(), policy.wrap_modules(), {}, true);
}

TEST(ShardedPrecision, ComesFromMixedPrecisionUnlessOneFieldIsSet) {
  config::AcceleratorConfig options;
  EXPECT_FALSE(resolve_precision(options).param_dtype);
  options.mixed_precision = "bf16";
  EXPECT_EQ(resolve_precision(options).param_dtype, at::kBFloat16);
  EXPECT_EQ(resolve_precision(options).reduce_dtype, at::kBFloat16);
  EXPECT_EQ(resolve_precision(options).output_dtype, at::kBFloat16);

  auto& policy = options.fsdp.mixed_precision_policy;
  policy.reduce_dtype = "float32";
  EXPECT_THAT(error_of([&] { resolve_precision(options); }), HasSubstr("param_dtype is missing"));
  policy.param_dtype = "bfloat16";
  EXPECT_EQ(resolve_precision(options).reduce_dtype, at::kFloat);
  EXPECT_FALSE(resolve_precision(options).output_dtype);
  policy.reduce_dtype.reset();
  EXPECT_EQ(resolve_precision(options).reduce_dtype, at::kBFloat16);
  policy.param_dtype = "float16";
  EXPECT_THAT(error_of([&] { resolve_precision(options); }), HasSubstr("mixed_precision=fp16"));
  policy.param_dtype = "half";
  EXPECT_THAT(error_of([&] { resolve_precision(options); }), HasSubstr("param_dtype=half"));
}

}  // namespace
}  // namespace lerobot::distributed
