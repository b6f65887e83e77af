#include "lerobot/checkpoint/checkpoint_writer.h"

#include <chrono>
#include <random>
#include <set>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/checkpoint_contents.h"
#include "tests/checkpoint/test_process.h"
#include "tests/serialization/test_files.h"

namespace lerobot::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

class Writer : public TestFolder {
 protected:
  fs::path checkpoints() const { return folder_ / "run/checkpoints"; }
  fs::path step(const char* name) const { return checkpoints() / name; }

  fs::path save(std::int64_t step) {
    return CheckpointWriter(checkpoints(), 100)
        .save(step, small_checkpoint(step, small_tensors(static_cast<double>(step))));
  }

  /// All names in the checkpoints folder, sorted.
  std::set<std::string> names() const {
    std::set<std::string> result;
    for (const auto& entry : fs::directory_iterator(checkpoints()))
      result.insert(entry.path().filename().string());
    return result;
  }
};

TEST_F(Writer, ACheckpointTakesItsNameAndLast) {
  EXPECT_EQ(save(40), step("000040"));
  EXPECT_EQ(missing_part(step("000040")), std::nullopt);
  EXPECT_THAT(names(), ElementsAre("000040", "last"));
  EXPECT_EQ(read_text_file(step("000040/pretrained_model/config.json")),
            "{\n    \"type\": \"act\"\n}");
  EXPECT_EQ(value_in(step("last")), 40.0F);
}

TEST_F(Writer, WithoutCommitNothingStays) {
  CheckpointWriter writer(checkpoints(), 100);
  {
    auto pending = writer.begin(10, 0);
    EXPECT_EQ(pending.directory().parent_path(), checkpoints());
    std::ofstream(pending.directory() / "x") << "x";
  }
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(Writer, SeveralRanksFillOneFolder) {
  CheckpointWriter writer(checkpoints(), 100);
  auto pending = writer.begin(10, 0);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(in_child([&] {
                std::ofstream(pending.directory() / fmt::format("__{}_0.distcp", rank)) << rank;
                return std::string("ok");
              }),
              "ok");
  }
  pending.commit();
  EXPECT_EQ(read_text_file(step("000010/__2_0.distcp")), "2");
}

TEST_F(Writer, ALeftOverFolderOfTheSameStepIsReplacedAsAUnit) {
  // Field report: junk and stale shards of four ranks lie where a save of two ranks goes.
  for (int rank = 0; rank < 4; ++rank)
    write(fmt::format("run/checkpoints/000010/pretrained_model/pytorch_model_fsdp_0/__{}_0.distcp",
                      rank),
          "stale");
  write("run/checkpoints/000010/junk", "junk");
  save(10);
  EXPECT_FALSE(fs::exists(step("000010/junk")));
  EXPECT_FALSE(fs::exists(step("000010/pretrained_model/pytorch_model_fsdp_0")));
  EXPECT_EQ(missing_part(step("000010")), std::nullopt);
  EXPECT_THAT(names(), ElementsAre("000010", "last"));
}

TEST_F(Writer, AFileOrLinkOfTheSameNameIsReplacedAndItsTargetKept) {
  write("elsewhere/keep", "mine");
  fs::create_directories(checkpoints());
  fs::create_directory_symlink(folder_ / "elsewhere", step("000010"));
  write("run/checkpoints/000020", "a file");
  save(10);
  save(20);
  EXPECT_EQ(read_text_file(folder_ / "elsewhere/keep"), "mine");
  EXPECT_EQ(missing_part(step("000010")), std::nullopt);
  EXPECT_EQ(missing_part(step("000020")), std::nullopt);
  EXPECT_THAT(names(), ElementsAre("000010", "000020", "last"));
}

TEST_F(Writer, WhereNamesCannotBeExchangedTheOldFolderStepsAside) {
  save(10);
  write("run/checkpoints/000010/junk", "junk");
  EXPECT_EQ(in_child([&] {
              let_system_call_fail(__NR_renameat2, EINVAL);
              return save(10).string();
            }),
            step("000010").string());
  EXPECT_FALSE(fs::exists(step("000010/junk")));
  EXPECT_THAT(names(), ElementsAre("000010", "last"));
}

TEST_F(Writer, WhatDeadRunsLeftIsCleanedUp) {
  save(10);
  write("run/checkpoints/.000020.tmp-1-0/pretrained_model/config.json", "{");
  // A kill between the two renames of a replacement: the old folder is all there is.
  fs::rename(step("000010"), step(".000010.old-1-0"));
  write("run/checkpoints/.000010.tmp-1-1/x", "x");
  write("run/checkpoints/.other", "not ours");
  CheckpointWriter writer(checkpoints(), 100);
  EXPECT_THAT(names(), ElementsAre(".other", "000010", "last"));
  EXPECT_EQ(missing_part(step("000010")), std::nullopt);
}

TEST_F(Writer, AnotherRunsSaveInProgressIsLeftAlone) {
  CheckpointWriter writer(checkpoints(), 100);
  auto pending = writer.begin(10, 0);
  EXPECT_EQ(in_child([&] {
              CheckpointWriter other(checkpoints(), 100);
              return std::string(fs::exists(pending.directory()) ? "there" : "gone");
            }),
            "there");
}

TEST_F(Writer, AFailingFileLeavesThePreviousCheckpoint) {
  save(10);
  auto files = small_checkpoint(20, small_tensors(20));
  files.push_back({"pretrained_model/x", 0, [](const fs::path&) { fail("x is broken"); }});
  CheckpointWriter writer(checkpoints(), 100);
  EXPECT_THAT(error_of([&] { writer.save(20, files); }),
              AllOf(HasSubstr("cannot save the checkpoint of step 20: x is broken"),
                    HasSubstr("000010 is intact")));
  EXPECT_THAT(names(), ElementsAre("000010", "last"));
  EXPECT_THAT(read_last(checkpoints()), Optional(step("000010")));
}

TEST_F(Writer, AForeignExceptionBecomesAnError) {
  CheckpointWriter writer(checkpoints(), 100);
  const FileEntry entry{"x", 0, [](const fs::path&) { throw std::runtime_error("strange"); }};
  EXPECT_THAT(error_of([&] {
                writer.save(20, {&entry, 1});
              }),
              AllOf(HasSubstr("strange"), HasSubstr("no earlier checkpoint")));
}

TEST_F(Writer, AFullDiskIsAnErrorAndNotAShorterFile) {
  ::signal(SIGXFSZ, SIG_IGN);
  save(10);
  const std::string message = in_child([&] {
    const struct rlimit small { 2000, 2000 };
    ::setrlimit(RLIMIT_FSIZE, &small);
    return save(20).string();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("cannot save the checkpoint of step 20"),
                             HasSubstr("model.safetensors"), HasSubstr("File too large"),
                             HasSubstr("free space there"), HasSubstr("000010 is intact")));
  EXPECT_THAT(names(), ElementsAre("000010", "last"));
}

/// A file system of 256 kB, where this process may mount one.
class SmallDisk : public Writer {
 protected:
  SmallDisk() {
    fs::create_directories(folder_ / "run");
    mounted_ = ::mount("tmpfs", (folder_ / "run").c_str(), "tmpfs", 0, "size=256k") == 0;
  }
  ~SmallDisk() override {
    if (mounted_) ::umount((folder_ / "run").c_str());
  }
  void SetUp() override {
    if (!mounted_) GTEST_SKIP() << "mounting needs root";
  }
  bool mounted_;
};

TEST_F(SmallDisk, MissingSpaceIsSeenBeforeAnythingIsWritten) {
  save(10);
  CheckpointWriter writer(checkpoints(), 100);
  const auto large = small_checkpoint(20, {{"a", at::full({100'000}, 1.0, at::kFloat)}});
  EXPECT_THAT(error_of([&] { writer.save(20, large); }),
              AllOf(HasSubstr("are free, the checkpoint needs about 0.9 MB"),
                    HasSubstr("free space there"), HasSubstr("000010 is intact")));
  EXPECT_THAT(names(), ElementsAre("000010", "last"));
}

TEST_F(SmallDisk, SpaceThatRunsOutMeanwhileIsAnError) {
  save(10);
  CheckpointWriter writer(checkpoints(), 100);
  auto large = small_checkpoint(20, {{"a", at::full({100'000}, 1.0, at::kFloat)}});
  for (FileEntry& entry : large) entry.bytes = 0;
  EXPECT_THAT(error_of([&] { writer.save(20, large); }),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("No space left on device"),
                    HasSubstr("free space there"), HasSubstr("000010 is intact")));
  EXPECT_THAT(names(), ElementsAre("000010", "last"));
  EXPECT_EQ(value_in(step("last")), 10.0F);
}

TEST_F(SmallDisk, ADiskThatBecomesReadOnlyIsAnError) {
  save(10);
  CheckpointWriter writer(checkpoints(), 100);
  ASSERT_EQ(::mount("", (folder_ / "run").c_str(), "", MS_REMOUNT | MS_RDONLY, ""), 0);
  EXPECT_THAT(error_of([&] { writer.save(20, small_checkpoint(20, small_tensors(20))); }),
              AllOf(HasSubstr("Read-only file system"), HasSubstr("make the folder writable"),
                    HasSubstr("000010 is intact")));
  EXPECT_THAT(error_of([&] { CheckpointWriter(checkpoints(), 100); }),
              AllOf(HasSubstr("cannot be written to"), HasSubstr("Read-only file system")));
}

TEST_F(Writer, AFolderWithoutPermissionIsReportedAtTheStart) {
  fs::create_directories(checkpoints());
  ::chmod(folder_.c_str(), 0755);
  const auto as_nobody = [&](const fs::path& where) {
    return in_child([&] {
      constexpr uid_t kNobody = 65534;
      if (::getuid() == 0 && ::setuid(kNobody) != 0) return std::string("setuid");
      if (::getuid() != kNobody) ::chmod(where.parent_path().c_str(), 0555);
      CheckpointWriter writer(where, 100);
      return std::string("no error");
    });
  };
  EXPECT_THAT(as_nobody(folder_ / "other/checkpoints"),
              AllOf(HasSubstr("cannot be created: Permission denied"),
                    HasSubstr("choose another --output_dir")));
  if (::getuid() == 0) {
    EXPECT_THAT(as_nobody(checkpoints()), HasSubstr("cannot be written to: Permission denied"));
  }
}

TEST_F(Writer, TheOutputFolderMayNotBeAFile) {
  write("run", "a file");
  EXPECT_THAT(error_of([&] { CheckpointWriter(checkpoints(), 100); }),
              HasSubstr("cannot be created"));
}

TEST_F(Writer, AKillAtAnyMomentLeavesCompleteCheckpointsOnly) {
  // Large enough for kills to fall into the middle of files.
  const serialization::NamedTensors tensors = {{"a", at::full({400'000}, 1.0, at::kFloat)},
                                               {"b", at::full({3}, 1.0, at::kFloat)}};
  std::mt19937 random(1);
  // How long a save takes depends on the machine and on what else runs there.
  const auto begin = std::chrono::steady_clock::now();
  save(90);
  CheckpointWriter(checkpoints(), 100).save(91, small_checkpoint(91, tensors));
  const auto longest = 2 * (std::chrono::steady_clock::now() - begin);
  fs::remove_all(checkpoints());

  int interrupted = 0, found = 0;
  constexpr int kKills = 50, kMostKills = 400;
  for (int kill = 0; kill < kMostKills; ++kill) {
    if (kill >= kKills && interrupted >= kKills / 3 && found >= kKills / 3) break;
    const pid_t child = ::fork();
    if (child == 0) {
      // New steps and replaced ones in turn, until it is killed.
      try {
        CheckpointWriter writer(checkpoints(), 100);
        for (int i = 0;; ++i) writer.save(1 + i % 3, small_checkpoint(1 + i % 3, tensors));
      } catch (...) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(longest * (random() % 1000) / 1000);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";
    if (!fs::exists(checkpoints())) continue;

    bool any = false;
    for (const auto& name : names()) {
      if (name.starts_with('.')) ++interrupted;
      if (!config::parse_step_folder_name(name)) continue;
      any = true;
      EXPECT_EQ(missing_part(checkpoints() / name), std::nullopt) << name;
    }
    found += any;
    if (fs::symlink_status(step("last")).type() != fs::file_type::not_found) {
      EXPECT_NE(read_last(checkpoints()), std::nullopt);
    }
    EXPECT_EQ(latest_checkpoint(checkpoints()).has_value(), any);
    CheckpointWriter clean(checkpoints(), 100);
    for (const auto& name : names())
      EXPECT_TRUE(!name.starts_with('.') || name == ".last.tmp") << name;
  }
  EXPECT_GE(interrupted, kKills / 3) << "no kill fell into a save";
  EXPECT_GE(found, kKills / 3) << "no save was ever finished";
}

}  // namespace
}  // namespace lerobot::checkpoint
