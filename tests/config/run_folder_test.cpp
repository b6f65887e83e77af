#include "lerobot/config/run_folder.h"

#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/files.h"
#include "tests/support/error_of.h"

namespace lerobot::config {
namespace {

using ::testing::HasSubstr;

/// run/checkpoints/{000004, 000008}/pretrained_model/train_config.json, without `last`.
class RunFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    run_ = fs::temp_directory_path() / ("lerobot run " + std::to_string(::getpid()));
    for (const char* step : {"000004", "000008"}) {
      const fs::path folder = run_ / "checkpoints" / step / "pretrained_model";
      fs::create_directories(folder);
      std::ofstream(folder / "train_config.json") << "{}";
      std::ofstream(folder / "config.json") << "{}";
    }
  }
  void TearDown() override { fs::remove_all(run_); }

  fs::path step(const char* name) const {
    return run_ / "checkpoints" / name / "pretrained_model" / "train_config.json";
  }
  void link_last(const fs::path& target) {
    fs::remove(last());
    fs::create_directory_symlink(target, last());
  }
  fs::path last() const { return run_ / "checkpoints" / "last"; }
  static std::string refusal(const fs::path& path) {
    return error_of([&] { find_train_config(path); });
  }

  fs::path run_;
};

TEST(RunFolderNames, HaveTheDigitsOfTheTotal) {
  EXPECT_EQ(step_folder_name(40, 100), "000040");
  EXPECT_EQ(step_folder_name(40, 999'999), "000040");
  EXPECT_EQ(step_folder_name(40, 1'000'000), "0000040");
  EXPECT_EQ(parse_step_folder_name("000040"), 40);
  EXPECT_EQ(parse_step_folder_name("0000040"), 40);
  for (const char* name : {"", "40", "last", "00004x", "-00040", ".000040", "99999999999999999999"})
    EXPECT_EQ(parse_step_folder_name(name), std::nullopt) << name;
}

TEST_F(RunFolder, FileFolderAndCheckpointMeanTheSame) {
  for (const fs::path& path :
       {step("000004"), step("000004").parent_path(), run_ / "checkpoints/000004"})
    EXPECT_EQ(find_train_config(path), step("000004")) << path;
  for (const fs::path& path : {step("000004").parent_path(), run_ / "checkpoints/000004"})
    EXPECT_EQ(find_pretrained(path), step("000004").parent_path()) << path;
}

TEST_F(RunFolder, LastIsReplacedByTheStepItNamesWhetherLinkOrFile) {
  const auto check = [&](const char* name) {
    for (const fs::path& path :
         {last(), last() / "pretrained_model", last() / "pretrained_model/train_config.json",
          run_ / "checkpoints", run_})
      EXPECT_EQ(find_train_config(path), step(name)) << path;
    for (const fs::path& path :
         {last(), last() / "", last() / "pretrained_model", run_ / "checkpoints", run_})
      EXPECT_EQ(find_pretrained(path), step(name).parent_path()) << path;
  };
  link_last("000004");
  check("000004");
  link_last(fs::absolute(run_ / "checkpoints/000008"));
  check("000008");
  fs::remove(last());
  std::ofstream(last()) << "000004\n";
  check("000004");
}

TEST_F(RunFolder, ARealFolderNamedLastIsTakenAsItIs) {
  fs::copy(run_ / "checkpoints/000004", last(), fs::copy_options::recursive);
  EXPECT_EQ(named_by_last(last()), std::nullopt);
  EXPECT_EQ(find_train_config(last()), last() / "pretrained_model/train_config.json");
  EXPECT_EQ(find_pretrained(run_), last() / "pretrained_model");
}

TEST_F(RunFolder, ADanglingLastIsNamed) {
  link_last("000099");
  EXPECT_THAT(refusal(last()), HasSubstr("last names"));
  EXPECT_THAT(refusal(last()), HasSubstr("000099, which does not exist"));
  EXPECT_THAT(refusal(run_), HasSubstr("there is no usable `last`"));
}

TEST_F(RunFolder, WithoutLastTheNewestCheckpointIsProposed) {
  for (const fs::path& path : {run_, run_ / "checkpoints"})
    EXPECT_THAT(refusal(path), HasSubstr("pass the checkpoint itself, for instance " +
                                         (run_ / "checkpoints/000008").string()));
}

TEST_F(RunFolder, WhatIsNotThereIsSaidInOneLine) {
  EXPECT_THAT(refusal(run_ / "none.json"),
              HasSubstr("no such file or folder; pass a train_config.json, a checkpoint or the "
                        "run's output folder"));
  EXPECT_THAT(refusal("someone/policy"), HasSubstr("no such file or folder"));
  fs::create_directories(run_ / "empty");
  EXPECT_THAT(refusal(run_ / "empty"), HasSubstr("no train_config.json in this folder"));
  EXPECT_THAT(error_of([&] { find_pretrained(run_ / "empty"); }),
              HasSubstr("no config.json in this folder"));
  EXPECT_THAT(error_of([&] { find_pretrained(step("000004")); }), HasSubstr("is a file"));
  EXPECT_THAT(error_of([&] { find_pretrained("someone/policy"); }), HasSubstr("no such folder"));
  EXPECT_THAT(error_of([&] { find_pretrained(run_); }), HasSubstr("no usable `last`"));
}

TEST_F(RunFolder, AFileCalledLastThatHoldsNoStepIsNotFollowed) {
  std::ofstream(last()) << "../../etc";
  EXPECT_EQ(resolve_last(last()), last());
  std::ofstream(last()) << std::string(1000, '1');
  EXPECT_EQ(resolve_last(last()), last());
}

}  // namespace
}  // namespace lerobot::config
