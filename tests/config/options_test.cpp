// The list of options and --help.
#include <set>
#include <sstream>

#include "lerobot/config/nearest_name.h"
#include "lerobot/config/text_value.h"
#include "lerobot/config/train_options.h"
#include "tests/config/command_lines.h"

namespace lerobot::config::test {
namespace {

using ::testing::HasSubstr;

TEST(Options, EveryOptionOfOursHasHelp) {
  const PolicyTypes none;
  for (const Option& option : train_options(none)) EXPECT_NE(option.help, "") << option.name;
}

TEST(Options, EveryHelpTextBelongsToAMember) {
  const auto check = [](const HelpTexts& texts, const std::vector<std::string>& names) {
    for (const HelpText& text : texts)
      EXPECT_THAT(names, ::testing::Contains(option_name(text.field)));
  };
  check(option_help(static_cast<const TrainConfig*>(nullptr)), Codec<TrainConfig>::names());
  check(option_help(static_cast<const DatasetConfig*>(nullptr)), Codec<DatasetConfig>::names());
  check(option_help(static_cast<const PolicyConfig*>(nullptr)), Codec<PolicyConfig>::names());
  check(option_help(static_cast<const AcceleratorConfig*>(nullptr)),
        Codec<AcceleratorConfig>::names());
  check(option_help(static_cast<const FsdpConfig*>(nullptr)), Codec<FsdpConfig>::names());
  check(option_help(static_cast<const EmaConfig*>(nullptr)), Codec<EmaConfig>::names());
  check(option_help(static_cast<const PeftConfig*>(nullptr)), Codec<PeftConfig>::names());
}

TEST(Options, DefaultsAreWithinTheirLimits) {
  std::vector<Problem> problems;
  TrainConfig config;
  config.policy = std::make_shared<policy::ActConfig>();
  Codec<TrainConfig>::check(problems, "", config, {});
  for (const PolicyType& type : policies()) type.check(problems, "policy", *type.make());
  for (const Problem& problem : problems) ADD_FAILURE() << problem.message;
}

TEST(Help, ListsEveryOptionOnceOnOneLine) {
  const std::string help = train_help(policies());
  std::multiset<std::string> listed;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    if (line.starts_with("  --")) listed.insert(line.substr(4, line.find(' ', 4) - 4));
  }
  for (const Option& option : train_options(policies())) {
    if (option.group || option.trait == OptionTrait::kRecorded) continue;
    EXPECT_GE(listed.count(option.name), 1u) << option.name;
  }
  EXPECT_EQ(listed.count("policy.device"), 1u);
  EXPECT_EQ(listed.count("batch_size"), 1u);
}

TEST(Help, SaysDefaultsChoicesAndWhatHasNoEffect) {
  const std::string help = train_help(policies());
  EXPECT_THAT(help, HasSubstr("samples of one step in one process [8]"));
  EXPECT_THAT(help, HasSubstr("class of the policy: act, diffusion"));
  EXPECT_THAT(help, HasSubstr("autocast of the forward pass: no, fp16, bf16 [no]"));
  EXPECT_THAT(help, HasSubstr("no effect: there are no worker processes [true]"));
  EXPECT_THAT(help, HasSubstr("name of the dataset, OWNER/NAME [required]"));
}

TEST(NearestName, FindsSlipsAndTheRightNameInAnotherGroup) {
  const std::vector<std::string> names{"batch_size",   "policy.optimizer_lr", "optimizer.lr",
                                       "dataset.root", "eval.batch_size",     "steps"};
  EXPECT_EQ(nearest_name("batchsize", names), "batch_size");
  EXPECT_EQ(nearest_name("batch-size", names), "batch_size");
  EXPECT_EQ(nearest_name("BATCH_SIZE", names), "batch_size");
  EXPECT_EQ(nearest_name("bacth_size", names), "batch_size");
  EXPECT_EQ(nearest_name("lr", names), "optimizer.lr");
  EXPECT_EQ(nearest_name("root", names), "dataset.root");
  EXPECT_EQ(nearest_name("optimizer_lr", names), "policy.optimizer_lr");
  EXPECT_EQ(nearest_name("step", names), "steps");
  EXPECT_EQ(nearest_name("nothing_like_it", names), "");
  EXPECT_EQ(nearest_name("", names), "");
}

TEST(TextValue, IsJsonOrYamlOrItself) {
  const auto json = [](const char* text) { return Json::parse(text); };
  EXPECT_EQ(parse_value("[1, 2.5, a, 'b', null]"), json(R"([1, 2.5, "a", "b", null])"));
  EXPECT_EQ(parse_value("{a: {b: [1]}}"), json(R"({"a": {"b": [1]}})"));
  EXPECT_EQ(parse_value(R"({"a": "\u00e9", "b": 1e-5})"), json(R"({"a": "é", "b": 1e-5})"));
  EXPECT_EQ(parse_value("1e-5"), json("1e-5"));
  EXPECT_EQ(parse_value("+3"), json("3"));
  EXPECT_EQ(parse_value("-1_000"), json("-1000"));
  EXPECT_EQ(parse_value(".5"), json("0.5"));
  EXPECT_EQ(parse_value("1_"), json(R"("1_")"));
  EXPECT_EQ(parse_value("0x10"), json(R"("0x10")"));
  EXPECT_EQ(parse_value("v1.0"), json(R"("v1.0")"));
  EXPECT_EQ(parse_value("1.2.3"), json(R"("1.2.3")"));
  EXPECT_EQ(parse_value("{a: b"), json(R"("{a: b")"));
  EXPECT_EQ(parse_value(std::string(10000, '[')), Json(std::string(10000, '[')));
}

}  // namespace
}  // namespace lerobot::config::test
