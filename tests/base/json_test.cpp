#include "lerobot/base/json.h"

#include <cmath>

#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot {
namespace {

TEST(PythonFloat, PrintsWhatReprPrints) {
  // Each pair is from CPython 3.11's repr().
  EXPECT_EQ(python_float(1e-5), "1e-05");
  EXPECT_EQ(python_float(1e-4), "0.0001");
  EXPECT_EQ(python_float(0.0), "0.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(10.0), "10.0");
  EXPECT_EQ(python_float(1e15), "1000000000000000.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(123456.789), "123456.789");
  EXPECT_EQ(python_float(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(python_float(1.5e-310), "1.5e-310");
  EXPECT_EQ(python_float(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(python_float(std::nan("")), "NaN");
}

TEST(PythonJson, RewritesAFileOfLeRobotByteForByte) {
  const std::filesystem::path folder =
      std::string(LEROBOT_TEST_DATA) + "/checkpoints/state_single/000040";
  for (const auto& [file, indent] : {std::pair{"pretrained_model/train_config.json", 4},
                                     {"pretrained_model/config.json", 4},
                                     {"pretrained_model/policy_preprocessor.json", 2},
                                     {"training_state/optimizer_param_groups.json", 4}}) {
    const std::string text = read_text_file(folder / file);
    EXPECT_EQ(to_python_json(parse_json(text, file), indent), text) << file;
  }
}

TEST(PythonJson, OneLineFormHasPythonsSeparators) {
  const Json value = {{"a", {1, 2.0}}, {"b", Json::object()}, {"c", Json::array()}, {"d", "é\n"}};
  EXPECT_EQ(to_python_json(value, -1), R"({"a": [1, 2.0], "b": {}, "c": [], "d": "\u00e9\n"})");
  EXPECT_EQ(to_python_json("é", -1, /*ensure_ascii=*/false), "\"é\"");
}

TEST(ParseJson, ReadsPythonsConstantsOutsideOfStringsOnly) {
  const Json value =
      parse_json(R"({"NaN": "NaN Infinity \" NaN", "x": [NaN, -Infinity, Infinity]})", "t");
  EXPECT_EQ(value["NaN"], "NaN Infinity \" NaN");
  EXPECT_TRUE(std::isnan(value["x"][0].get<double>()));
  EXPECT_EQ(value["x"][1].get<double>(), -INFINITY);
  EXPECT_EQ(value["x"][2].get<double>(), INFINITY);
}

TEST(ParseJson, NamesTheFileOfABrokenText) {
  try {
    parse_json("{\"a\": ", "meta/info.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what())
                    .starts_with("meta/info.json: is not valid JSON: parse error at line 1, "));
  }
}

TEST(ParseJson, NamesTheFileOfANumberThatOverflows) {
  try {
    parse_json("{\"loss\": 1e999}", "metrics.jsonl");
    FAIL() << "was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl"), std::string::npos) << error.what();
  }
}

TEST(DuplicateJsonKeys, AreNamedWithTheirPath) {
  EXPECT_TRUE(duplicate_json_keys(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 2}]})").empty());
  const std::vector<std::string> names = duplicate_json_keys(
      R"({"a": NaN, "a": 1, "b": {"c": 1, "d": [1, {"e": 1, "e": 2}], "c": 2}})");
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b.d.e", "b.c"}));
  EXPECT_TRUE(duplicate_json_keys(R"({"a": 1, "a": )").empty());
}

}  // namespace
}  // namespace lerobot
