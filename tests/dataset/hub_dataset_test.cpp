#include "lerobot/dataset/hub_dataset.h"

#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/base/files.h"
#include "tests/support/error_of.h"

namespace lerobot::dataset {
namespace {

using ::testing::HasSubstr;

hub::Refs tags(std::initializer_list<const char*> names) {
  hub::Refs refs;
  refs.branches.push_back({"main", std::string(40, 'a')});
  for (const char* name : names) refs.tags.push_back({name, std::string(40, 'b')});
  return refs;
}

TEST(HubDataset, TheTagOfTheFormatIsRead) {
  EXPECT_EQ(choose_version(tags({"v2.1", "v3.0", "v4.0"}), "a/b", "v3.0"), "v3.0");
}

TEST(HubDataset, OtherwiseTheHighestThatIsNotAboveIt) {
  EXPECT_EQ(choose_version(tags({"v3.0", "v3.1", "v3.10", "v4.0"}), "a/b", "v3.4"), "v3.1");
}

TEST(HubDataset, ABranchMayBeAVersionToo) {
  hub::Refs refs = tags({});
  refs.branches.push_back({"v3.0", std::string(40, 'c')});
  EXPECT_EQ(choose_version(refs, "a/b", "v3.0"), "v3.0");
}

TEST(HubDataset, ADatasetWithoutARightVersionIsRefusedWithTheRemedy) {
  const auto refusal = [](std::initializer_list<const char*> names) {
    return error_of([&] { choose_version(tags(names), "a/b", "v3.0"); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("pass main as revision"));
  EXPECT_THAT(refusal({"release", "3.0", "v3", "v3.0.1", "v-3.0"}),
              HasSubstr("has no version tag"));
  EXPECT_THAT(refusal({"v1.6", "v2.1"}), HasSubstr("its newest version is v2.1"));
  EXPECT_THAT(refusal({"v2.1"}), HasSubstr("convert_dataset_v21_to_v30"));
  EXPECT_THAT(refusal({"v3.1", "v4.0"}), HasSubstr("exists from version v3.1 on only"));
}

TEST(HubDataset, WhatAnEarlyLeRobotDownloadedFileByFileIsNoLocalDataset) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("hub-dataset {}", ::getpid());
  fs::create_directories(folder / "meta");
  EXPECT_FALSE(is_local_dataset(folder));
  write_file_atomic(folder / "meta" / "info.json", "{}");
  EXPECT_TRUE(is_local_dataset(folder));
  fs::create_directories(folder / ".cache/huggingface/download");
  EXPECT_FALSE(is_local_dataset(folder));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lerobot::dataset
