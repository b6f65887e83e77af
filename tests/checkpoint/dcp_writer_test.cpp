// Folders of torch.distributed.checkpoint as our ranks write them.
// (tests/interop/test_dcp_write.py loads them with torch and compares the bytes.)
#include "lerobot/checkpoint/dcp_writer.h"

#include <map>
#include <set>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/json.h"
#include "lerobot/checkpoint/dcp_reader.h"
#include "tests/checkpoint/divided.h"
#include "tests/serialization/test_files.h"

namespace lerobot::checkpoint {
namespace {

using distributed::LocalTensor;
using distributed::Mesh;
using serialization::NamedTensors;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NamedTensors model() {
  return {{"uneven", counting({7, 5})},
          {"one_row", counting({1, 32})},
          {"three_rows", counting({3, 32}, at::kBFloat16)},
          {"counts", counting({9}, at::kLong)},
          {"none", counting({0, 4})},
          {"scalar", counting({})},
          {"buffer", counting({6})}};
}

std::vector<Mesh> meshes() { return {{0, 1, 1}, {0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 2, 2}}; }

std::vector<LocalDcpEntry> entries_of(const Mesh& mesh) {
  auto entries = model_entries(part_of(model(), mesh));
  entries.push_back({"model.rate", {"model", "rate"}, serialization::TorchValue(0.5)});
  return entries;
}

TEST(DcpPlanTest, EveryRankMakesTheSamePlan) {
  for (const Mesh& mesh : meshes()) {
    const auto plan = plan_dcp(entries_of(mesh), mesh);
    for (const Mesh& rank : ranks_of(mesh)) EXPECT_EQ(plan_dcp(entries_of(rank), rank), plan);
  }
}

TEST(DcpPlanTest, AChunkIsWrittenByARankThatHoldsItAndEmptyShardsOfATensorAreOne) {
  const Mesh mesh{0, 2, 4};
  const auto entries = entries_of(mesh);
  std::map<std::string, std::vector<const DcpTask*>> tasks;
  const auto plan = plan_dcp(entries, mesh);
  for (const DcpTask& task : plan) tasks[entries[task.entry].name].push_back(&task);
  // Rows 0-1, 2-3, 4-5 and 6 of seven.
  ASSERT_EQ(tasks["model.uneven"].size(), 4U);
  for (std::int64_t shard = 0; shard < 4; ++shard) {
    const DcpTask& task = *tasks["model.uneven"][static_cast<std::size_t>(shard)];
    EXPECT_EQ(task.rank % 4, shard);
    EXPECT_EQ(task.block->offsets[0], 2 * shard);
  }
  ASSERT_EQ(tasks["model.one_row"].size(), 2U);
  EXPECT_EQ(*tasks["model.one_row"][1]->block, (DcpBlock{{1, 0}, {0, 32}}));
  EXPECT_NE(tasks["model.one_row"][1]->rank % 4, 0);
  EXPECT_EQ(tasks["model.none"].size(), 1U);
  EXPECT_EQ(tasks["model.scalar"].size(), 1U);
  EXPECT_EQ(tasks["model.rate"].size(), 1U);
  EXPECT_FALSE(tasks["model.rate"][0]->block);
}

TEST(DcpPlanTest, ReplicasAndWholeTensorsShareTheWorkEvenly) {
  NamedTensors whole;
  for (int i = 0; i < 10; ++i) whole.emplace_back(fmt::format("divided{}", i), counting({8, 500}));
  for (int i = 0; i < 20; ++i) whole.emplace_back(fmt::format("buffer{}", i), counting({1000}));
  const Mesh mesh{0, 2, 2};
  const auto entries = model_entries(part_of(whole, mesh));
  std::vector<std::int64_t> elements(4, 0);
  for (const DcpTask& task : plan_dcp(entries, mesh)) {
    std::int64_t count = 1;
    for (const std::int64_t size : task.block->sizes) count *= size;
    elements[static_cast<std::size_t>(task.rank)] += count;
  }
  EXPECT_THAT(elements, ElementsAre(15000, 15000, 15000, 15000));
}

class DcpWriterTest : public TestFolder {
 protected:
  fs::path folder() const {
    fs::create_directories(folder_ / "shards");
    return folder_ / "shards";
  }
};

TEST_F(DcpWriterTest, WhatAnyNumberOfRanksWroteIsReadBack) {
  for (const Mesh& mesh : meshes()) {
    fs::remove_all(folder());
    write_folder(folder(), mesh, entries_of);
    const DcpReader reader(folder());
    ASSERT_EQ(reader.metadata().entries().size(), model().size() + 1);
    for (const auto& [name, tensor] : model()) {
      const at::Tensor read = reader.tensor("model." + name);
      EXPECT_EQ(read.scalar_type(), tensor.scalar_type());
      EXPECT_TRUE(at::equal(read, tensor)) << name;
      EXPECT_EQ(*reader.metadata().find("model." + name)->path, (DcpPath{"model", name}));
    }
    EXPECT_EQ(std::get<double>(reader.value("model.rate").content), 0.5);
    EXPECT_FALSE(fs::exists(folder() / ".metadata.tmp"));
  }
}

TEST_F(DcpWriterTest, ValuesComeFirstInAFileAndNothingLiesBetweenItems) {
  write_folder(folder(), {0, 1, 1}, entries_of);
  const DcpReader reader(folder());
  EXPECT_EQ(std::get<DcpValue>(reader.metadata().find("model.rate")->content).item.offset, 0U);
  std::uint64_t bytes = 0;
  for (const DcpEntry& entry : reader.metadata().entries()) {
    if (const auto* value = std::get_if<DcpValue>(&entry.content)) bytes += value->item.length;
    if (const auto* tensor = std::get_if<DcpTensor>(&entry.content))
      for (const DcpChunk& chunk : tensor->chunks) bytes += chunk.item.length;
  }
  EXPECT_EQ(fs::file_size(folder() / "__0_0.distcp"), bytes);
}

TEST_F(DcpWriterTest, APartOfALargerTensorBringsItsOwnElementsOnly) {
  const at::Tensor large = counting({1000, 100});
  const std::vector<LocalTensor> rows{{"rows", large.narrow(0, 3, 2), {2, 100}, 0, false},
                                      {"columns", large.narrow(1, 5, 1), {1000, 1}, 0, false},
                                      {"one", counting({1}).expand({50, 40}), {50, 40}, 0, false}};
  write_folder(folder(), {0, 1, 1}, [&](const Mesh&) { return model_entries(rows); });
  EXPECT_LT(fs::file_size(folder() / "__0_0.distcp"), 4 * (200 + 1000 + 2000) + 3 * 1600U);
  const DcpReader reader(folder());
  for (const LocalTensor& part : rows)
    EXPECT_TRUE(at::equal(reader.tensor("model." + part.name), part.tensor));
}

TEST_F(DcpWriterTest, ARankWithNothingToWriteLeavesNoFile) {
  const Mesh mesh{0, 1, 3};
  write_model(folder(), mesh, {{"one", counting({1, 4})}});
  EXPECT_TRUE(fs::exists(folder() / "__0_0.distcp"));
  EXPECT_TRUE(fs::exists(folder() / "__1_0.distcp"));  // the empty shards' chunk
  EXPECT_FALSE(fs::exists(folder() / "__2_0.distcp"));
  EXPECT_TRUE(at::equal(DcpReader(folder()).tensor("model.one"), counting({1, 4})));
}

TEST_F(DcpWriterTest, AFullDiskIsAnErrorThatNamesTheFile) {
  const auto entries = entries_of({0, 1, 1});
  fs::create_symlink("/dev/full", folder() / "__0_0.distcp");
  EXPECT_THAT(error_of([&] {
                write_dcp_file(folder(), entries, plan_dcp(entries, {0, 1, 1}), 0);
              }),
              AllOf(HasSubstr("__0_0.distcp"), HasSubstr("No space left")));
}

TEST_F(DcpWriterTest, ADtypeWithoutANameInTorchIsAnErrorThatNamesTheTensor) {
  DcpMetadata metadata;
  metadata.add({"model.q", DcpPath{"model", "q"}, DcpTensor{at::kQInt8, {0}, {}}});
  EXPECT_THAT(error_of([&] { pickle_dcp_metadata(metadata, {}); }),
              AllOf(HasSubstr("model.q"), HasSubstr("QInt8")));
}

TEST_F(DcpWriterTest, AReportThatIsNotWhatThePlanAskedForIsRefused) {
  const Mesh mesh{0, 1, 2};
  const auto entries = entries_of(mesh);
  const auto plan = plan_dcp(entries, mesh);
  std::vector<std::string> reports;
  for (const Mesh& rank : ranks_of(mesh))
    reports.push_back(write_dcp_file(folder(), entries_of(rank), plan, rank.rank));
  EXPECT_EQ(assemble_dcp_metadata(entries, plan, reports).entries().size(), entries.size());

  const auto refusal = [&](const std::string& report) {
    return error_of([&] {
      const std::vector<std::string> changed{reports[0], report};
      assemble_dcp_metadata(entries, plan, changed);
    });
  };
  EXPECT_THAT(refusal("{"), AllOf(HasSubstr("rank 1"), HasSubstr("no list")));
  EXPECT_THAT(refusal("[]"), AllOf(HasSubstr("rank 1 wrote 0 items"), HasSubstr("same options")));
  Json report = Json::parse(reports[1]);
  report[0][0] = "model.other";
  EXPECT_THAT(refusal(report.dump()), AllOf(HasSubstr("model.other"), HasSubstr("expected")));
  report = Json::parse(reports[1]);
  report[1][2] = 5;
  EXPECT_THAT(refusal(report.dump()), HasSubstr("at byte 5"));
  report = Json::parse(reports[1]);
  report[1][3] = -5;
  EXPECT_THAT(refusal(report.dump()), HasSubstr("-5 bytes"));
}

TEST(DcpMetadataWriterTest, WhatTorchDescribedIsDescribedAgainTheSame) {
  for (const char* name :
       {"dcp/dcp_tiny", "checkpoints/state_fsdp2/000008/training_state/optimizer_0",
        "checkpoints/state_hsdp4/000008/pretrained_model/pytorch_model_fsdp_0"}) {
    const DcpMetadata theirs = read_dcp_metadata(test_data(name));
    const std::string bytes = pickle_dcp_metadata(theirs, {"/a/folder", "an id"});
    const DcpMetadata ours = parse_dcp_metadata(
        {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "made");
    ASSERT_EQ(ours.entries().size(), theirs.entries().size());
    for (std::size_t i = 0; i < ours.entries().size(); ++i) {
      const DcpEntry &a = ours.entries()[i], &b = theirs.entries()[i];
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.path, b.path);
      ASSERT_EQ(a.content.index(), b.content.index());
      if (const auto* value = std::get_if<DcpValue>(&a.content)) {
        EXPECT_EQ(value->item, std::get<DcpValue>(b.content).item);
        continue;
      }
      const auto &tensor = std::get<DcpTensor>(a.content), &other = std::get<DcpTensor>(b.content);
      EXPECT_EQ(tensor.dtype, other.dtype);
      EXPECT_EQ(tensor.size, other.size);
      ASSERT_EQ(tensor.chunks.size(), other.chunks.size());
      for (std::size_t c = 0; c < tensor.chunks.size(); ++c) {
        EXPECT_EQ(tensor.chunks[c].block, other.chunks[c].block);
        EXPECT_EQ(tensor.chunks[c].item, other.chunks[c].item);
      }
    }
  }
}

TEST(DcpMetadataWriterTest, TheFirstOpcodesAreThoseOfTorch) {
  const DcpMetadata tiny = read_dcp_metadata(test_data("dcp/dcp_tiny"));
  const std::string theirs = read_text_file(test_data("dcp/dcp_tiny/.metadata"));
  const std::string ours = pickle_dcp_metadata(tiny, {"/tmp", "id"});
  // Behind the frame's length, up to the first text that torch's run had as two objects.
  EXPECT_EQ(ours.substr(0, 3), theirs.substr(0, 3));
  EXPECT_EQ(ours.substr(11, 298), theirs.substr(11, 298));
}

TEST(DcpEntriesTest, AnOptimizerHasTheEntriesThatAccelerateGivesIt) {
  const DcpReader theirs(test_data("checkpoints/state_fsdp2/000008/training_state/optimizer_0"));
  // The parameters by group, from what was saved.
  std::vector<optim::Group> groups(2);
  std::vector<LocalTensor> model;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto names = theirs.value(fmt::format("optimizer.param_groups.{}.params", i));
    for (const auto& item : std::get<serialization::TorchList>(names.content).items) {
      const auto& name = std::get<std::string>(item.content);
      const auto& entry = *theirs.metadata().find("optimizer.state." + name + ".exp_avg");
      const auto& size = std::get<DcpTensor>(entry.content).size;
      at::Tensor parameter = counting(size).requires_grad_(true);
      model.push_back({name, parameter, size, 0, true});
      groups[i].parameters.emplace_back(name, parameter);
    }
  }
  const auto optimizer = optim::make_optimizer(config::AdamWConfig{}, std::move(groups));
  std::set<std::string> ours;
  for (const LocalDcpEntry& entry : optimizer_entries(*optimizer, model)) {
    ours.insert(entry.name);
    const DcpEntry* found = theirs.metadata().find(entry.name);
    ASSERT_TRUE(found) << entry.name;
    EXPECT_EQ(entry.path, found->path);
    const auto* local = std::get_if<LocalTensor>(&entry.content);
    const auto* tensor = std::get_if<DcpTensor>(&found->content);
    ASSERT_EQ(local != nullptr, tensor != nullptr) << entry.name;
    if (local) {
      EXPECT_EQ(local->global_size, tensor->size) << entry.name;
      EXPECT_EQ(local->tensor.scalar_type(), tensor->dtype);
    }
  }
  EXPECT_EQ(ours.size(), theirs.metadata().entries().size());
}

}  // namespace
}  // namespace lerobot::checkpoint
