#include "lerobot/checkpoint/shared_files.h"

#include <fstream>
#include <unistd.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/checkpoint/dcp_entries.h"
#include "lerobot/checkpoint/dcp_reader.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/distributed/world.h"
#include "tests/checkpoint/divided.h"
#include "tests/support/ranks.h"

namespace lerobot::checkpoint {
namespace {

using distributed::Degrees;
using distributed::LocalTensor;
using distributed::run_ranks;
using distributed::World;
using ::testing::HasSubstr;

/// Where all ranks of one test write.
class Folder {
 public:
  explicit Folder(const char* name)
      : path_(fs::temp_directory_path() / fmt::format("shared files {} {}", name, ::getpid())) {
    fs::remove_all(path_);
  }
  ~Folder() {
    if (::getpid() == owner_) fs::remove_all(path_);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  pid_t owner_ = ::getpid();
};

serialization::NamedTensors whole_model() {
  at::manual_seed(7);
  return {{"wide", at::randn({5, 3})},
          {"row", at::randn({1, 4})},
          {"half", at::randn({6}).to(at::kBFloat16)},
          {"buffer", at::randn({2, 2})}};
}

std::vector<LocalTensor> local_model(const distributed::Mesh& mesh) {
  return part_of(whole_model(), mesh);
}

class SharedFiles : public ::testing::TestWithParam<Degrees> {};

TEST_P(SharedFiles, HoldTheWholeModelInBothForms) {
  const Folder folder("both");
  run_ranks(GetParam(), [&](const World& world) {
    CheckpointWriter writer(folder.path(), 100, world.background());
    const auto local = local_model(world.mesh());
    const fs::path saved = writer.save(
        7, std::vector<FileEntry>{
               gathered_file("model.safetensors", local, world.mesh(), world.background()),
               dcp_folder("shards", model_entries(local), world.mesh(), world.background(),
                          folder.path() / "000007" / "shards")});
    EXPECT_EQ(saved, folder.path() / "000007");
  });
  const serialization::SafetensorsFile file(folder.path() / "000007" / "model.safetensors");
  const DcpReader shards(folder.path() / "000007" / "shards");
  for (const auto& [name, tensor] : whole_model()) {
    EXPECT_TRUE(at::equal(file.tensor(name), tensor)) << name;
    EXPECT_TRUE(at::equal(shards.tensor("model." + name), tensor)) << name;
  }
  EXPECT_EQ(fs::read_symlink(folder.path() / "last"), "000007");
}

INSTANTIATE_TEST_SUITE_P(Layouts, SharedFiles,
                         ::testing::Values(Degrees{1, 2}, Degrees{1, 3}, Degrees{2, 2}),
                         [](const auto& info) {
                           return fmt::format("{}x{}", info.param.dp_replicate,
                                              info.param.dp_shard);
                         });

TEST(SharedFilesTogether, AFailureOfAnyRankLeavesThePreviousCheckpoint) {
  for (const std::int64_t failing : {0, 1}) {
    const Folder folder("failure");
    const auto ends = distributed::ends_of_ranks({1, 2}, [&](const World& world) {
      CheckpointWriter writer(folder.path(), 100, world.background());
      const auto local = local_model(world.mesh());
      std::vector<FileEntry> files{
          gathered_file("model.safetensors", local, world.mesh(), world.background())};
      writer.save(1, files);
      files.push_back({.relative_path = "broken", .bytes = 0, .write = [&](const fs::path&) {
                         if (world.rank() == failing) fail("no more paper");
                       }});
      writer.save(2, files);
    });
    for (const auto& end : ends) {
      EXPECT_EQ(end.exit_code, 1) << describe(ends);
      EXPECT_THAT(end.error, HasSubstr("no more paper"));
      EXPECT_LT(end.seconds, 20);
    }
    EXPECT_TRUE(fs::exists(folder.path() / "000001" / "model.safetensors"));
    EXPECT_FALSE(fs::exists(folder.path() / "000002"));
    EXPECT_EQ(fs::read_symlink(folder.path() / "last"), "000001");
  }
}

TEST(SharedFilesTogether, WhatAnotherNumberOfRanksLeftInTheFolderIsGone) {
  const Folder folder("stale");
  fs::create_directories(folder.path() / "000007" / "shards");
  std::ofstream(folder.path() / "000007" / "shards" / "__3_0.distcp") << "junk";
  run_ranks({1, 2}, [&](const World& world) {
    CheckpointWriter writer(folder.path(), 100, world.background());
    writer.save(
        7, std::vector<FileEntry>{dcp_folder("shards", model_entries(local_model(world.mesh())),
                                             world.mesh(), world.background(), "shards")});
  });
  EXPECT_FALSE(fs::exists(folder.path() / "000007" / "shards" / "__3_0.distcp"));
  DcpReader shards(folder.path() / "000007" / "shards");
}

}  // namespace
}  // namespace lerobot::checkpoint
