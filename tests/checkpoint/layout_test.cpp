#include "lerobot/checkpoint/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/checkpoint_contents.h"
#include "tests/checkpoint/test_process.h"
#include "tests/serialization/test_files.h"

namespace lerobot::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

/// <output>/checkpoints with complete checkpoints of steps 10 and 20.
class Layout : public TestFolder {
 protected:
  Layout() : output_(folder_ / "run"), checkpoints_(output_ / config::kCheckpointsFolder) {
    CheckpointWriter writer(checkpoints_, 100);
    for (const int step : {10, 20}) writer.save(step, small_checkpoint(step, small_tensors(step)));
  }
  fs::path step(const char* name) const { return checkpoints_ / name; }

  fs::path output_;
  fs::path checkpoints_;
};

TEST_F(Layout, LastIsARelativeLink) {
  EXPECT_EQ(fs::read_symlink(step("last")), "000020");
  EXPECT_THAT(read_last(checkpoints_), Optional(step("000020")));
  // It stays right when the output folder moves.
  fs::rename(output_, folder_ / "moved");
  EXPECT_THAT(read_last(folder_ / "moved/checkpoints"),
              Optional(folder_ / "moved/checkpoints/000020"));
}

TEST_F(Layout, LastMayBeATextFile) {
  fs::remove(step("last"));
  write("run/checkpoints/last", "000010\n");
  EXPECT_THAT(read_last(checkpoints_), Optional(step("000010")));
  EXPECT_THAT(latest_checkpoint(checkpoints_), Optional(step("000010")));
  // And becomes a link again at the next save.
  EXPECT_TRUE(point_last_at(checkpoints_, "000020"));
  EXPECT_EQ(fs::read_symlink(step("last")), "000020");
}

TEST_F(Layout, ATextFileThatNamesNoStepIsNoPointer) {
  for (const char* text : {"", "../000010", "/etc/passwd", "000099"}) {
    fs::remove(step("last"));
    write("run/checkpoints/last", text);
    EXPECT_EQ(read_last(checkpoints_), std::nullopt) << text;
  }
}

TEST_F(Layout, WithoutSymbolicLinksLastIsATextFile) {
  EXPECT_EQ(in_child([&] {
              let_system_call_fail(__NR_symlink, EPERM);
              return point_last_at(checkpoints_, "000010") ? "done" : "left alone";
            }),
            "done");
  EXPECT_FALSE(fs::is_symlink(step("last")));
  EXPECT_EQ(read_text_file(step("last")), "000010");
  EXPECT_THAT(read_last(checkpoints_), Optional(step("000010")));
}

TEST_F(Layout, ARealFolderNamedLastIsNeverTouched) {
  fs::remove(step("last"));
  write("run/checkpoints/last/keep.txt", "mine");
  EXPECT_FALSE(point_last_at(checkpoints_, "000020"));
  EXPECT_EQ(read_text_file(step("last") / "keep.txt"), "mine");
  EXPECT_EQ(read_last(checkpoints_), std::nullopt);
  EXPECT_THAT(latest_checkpoint(checkpoints_), Optional(step("000020")));
  // Saving goes on.
  CheckpointWriter(checkpoints_, 100).save(30, small_checkpoint(30, small_tensors(30)));
  EXPECT_THAT(latest_checkpoint(checkpoints_), Optional(step("000030")));
  EXPECT_EQ(read_text_file(step("last") / "keep.txt"), "mine");
}

TEST_F(Layout, ADanglingLastFallsBackToTheHighestStep) {
  fs::remove(step("last"));
  fs::create_symlink("000099", step("last"));
  EXPECT_EQ(read_last(checkpoints_), std::nullopt);
  EXPECT_THAT(latest_checkpoint(checkpoints_), Optional(step("000020")));
  EXPECT_TRUE(point_last_at(checkpoints_, "000010"));
  EXPECT_THAT(read_last(checkpoints_), Optional(step("000010")));
}

TEST_F(Layout, AnIncompleteCheckpointIsPassedOver) {
  EXPECT_EQ(missing_part(step("000020")), std::nullopt);
  const auto without = [&](const char* file) {
    const fs::path path = step("000020") / file;
    fs::rename(path, folder_ / "aside");
    const auto missing = missing_part(step("000020"));
    EXPECT_THAT(latest_checkpoint(checkpoints_), Optional(step("000010"))) << file;
    fs::rename(folder_ / "aside", path);
    return missing;
  };
  for (const char* file :
       {"pretrained_model/config.json", "pretrained_model/train_config.json",
        "pretrained_model/model.safetensors", "training_state/training_step.json",
        "training_state/rng_state.safetensors", "training_state/optimizer_state.safetensors",
        "training_state/optimizer_param_groups.json"})
    EXPECT_EQ(without(file), file);
  EXPECT_EQ(missing_part(step("000099")), "pretrained_model/config.json");
}

TEST_F(Layout, WhatLacksAPartIsNotResumedAndTheNextBestIsNamed) {
  require_complete(step("000020"));
  fs::remove(step("000020/training_state/rng_state.safetensors"));
  EXPECT_THAT(error_of([&] { require_complete(step("000020")); }),
              AllOf(HasSubstr("rng_state.safetensors is missing or cut off"),
                    HasSubstr("newest complete one"), HasSubstr("000010")));
}

TEST_F(Layout, AFileCutOffByAKillCountsAsMissing) {
  for (const char* file : {"pretrained_model/model.safetensors", "pretrained_model/config.json",
                           "training_state/optimizer_state.safetensors"}) {
    const fs::path path = step("000020") / file;
    const auto size = fs::file_size(path);
    const std::string content = read_text_file(path);
    fs::resize_file(path, size - 1);
    EXPECT_EQ(missing_part(step("000020")), file);
    std::ofstream(path, std::ios::binary) << content;
  }
  EXPECT_EQ(missing_part(step("000020")), std::nullopt);
}

TEST_F(Layout, ShardsCountWhenTheirMetadataIsThere) {
  const fs::path model = step("000020") / config::kPretrainedModelFolder;
  fs::create_directories(model / kShardedModelFolder);
  EXPECT_EQ(missing_part(step("000020")), "pretrained_model/pytorch_model_fsdp_0/.metadata");
  write(model / kShardedModelFolder / ".metadata", "");
  fs::remove(model / kModelFile);  // checkpoint_format=dcp has none
  EXPECT_EQ(missing_part(step("000020")), std::nullopt);
  const fs::path state = step("000020") / config::kTrainingStateFolder;
  fs::create_directories(state / kShardedOptimizerFolder);
  EXPECT_EQ(missing_part(step("000020")), "training_state/optimizer_0/.metadata");
  write(state / kShardedOptimizerFolder / ".metadata", "");
  EXPECT_EQ(missing_part(step("000020")), std::nullopt);
}

TEST_F(Layout, CheckpointsOfLeRobotAreComplete) {
  for (const char* name : {"state_single/000040", "state_accum/000008", "state_sched/000006"})
    EXPECT_EQ(missing_part(test_data("checkpoints") / name), std::nullopt) << name;
}

}  // namespace
}  // namespace lerobot::checkpoint
