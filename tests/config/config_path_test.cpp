#include "lerobot/config/config_path.h"

#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::config {
namespace {

using ::testing::HasSubstr;

/// run/checkpoints/{000004, 000008}/pretrained_model/train_config.json, without `last`.
class ConfigPath : public ::testing::Test {
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
    try {
      find_train_config(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path run_;
};

TEST_F(ConfigPath, FileFolderAndCheckpointMeanTheSame) {
  for (const fs::path& path :
       {step("000004"), step("000004").parent_path(), run_ / "checkpoints/000004"})
    EXPECT_EQ(find_train_config(path), step("000004")) << path;
}

TEST_F(ConfigPath, LastIsReplacedByTheStepItNamesWhetherLinkOrFile) {
  const auto check = [&](const char* name) {
    for (const fs::path& path :
         {last(), last() / "pretrained_model", last() / "pretrained_model/train_config.json",
          run_ / "checkpoints", run_})
      EXPECT_EQ(find_train_config(path), step(name)) << path;
  };
  link_last("000004");
  check("000004");
  link_last(fs::absolute(run_ / "checkpoints/000008"));
  check("000008");
  fs::remove(last());
  std::ofstream(last()) << "000004\n";
  check("000004");
  EXPECT_EQ(find_pretrained(last()), step("000004").parent_path());
}

TEST_F(ConfigPath, ADanglingLastIsNamed) {
  link_last("000099");
  EXPECT_THAT(refusal(last()), HasSubstr("last names"));
  EXPECT_THAT(refusal(last()), HasSubstr("000099, which does not exist"));
  EXPECT_THAT(refusal(run_), HasSubstr("there is no usable `last`"));
}

TEST_F(ConfigPath, WithoutLastTheNewestCheckpointIsProposed) {
  for (const fs::path& path : {run_, run_ / "checkpoints"})
    EXPECT_THAT(refusal(path), HasSubstr("pass the checkpoint itself, for instance " +
                                         (run_ / "checkpoints/000008").string()));
}

TEST_F(ConfigPath, WhatIsNotThereIsSaidInOneLine) {
  EXPECT_THAT(refusal(run_ / "none.json"),
              HasSubstr("no such file or folder; pass a train_config.json, a checkpoint or the "
                        "run's output folder"));
  EXPECT_THAT(refusal("someone/policy"),
              HasSubstr("configurations on the Hub are not supported yet"));
  fs::create_directories(run_ / "empty");
  EXPECT_THAT(refusal(run_ / "empty"), HasSubstr("no train_config.json in this folder"));
}

TEST_F(ConfigPath, AFileCalledLastThatHoldsNoStepIsNotFollowed) {
  std::ofstream(last()) << "../../etc";
  EXPECT_EQ(resolve_last(last()), last());
  std::ofstream(last()) << std::string(1000, '1');
  EXPECT_EQ(resolve_last(last()), last());
}

}  // namespace
}  // namespace lerobot::config
