// Folders that torch.distributed.checkpoint wrote, and made ones with any cut.
// (tests/interop/test_dcp.py compares with torch's own reading.)
#include "lerobot/checkpoint/dcp_reader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/serialization/safetensors.h"
#include "tests/checkpoint/made_dcp.h"
#include "tests/serialization/test_files.h"

namespace lerobot::checkpoint {
namespace {

using serialization::TorchDict;
using serialization::TorchList;
using serialization::TorchTuple;
using serialization::TorchValue;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

fs::path tiny() { return test_data("dcp/dcp_tiny"); }
fs::path fsdp2() { return test_data("checkpoints/state_fsdp2/000008"); }

at::Tensor counting(std::vector<std::int64_t> size, at::ScalarType dtype = at::kFloat) {
  std::int64_t count = 1;
  for (const std::int64_t n : size) count *= n;
  return at::arange(count, at::kFloat).to(dtype).reshape(size);
}

template <class T>
T value_as(const TorchValue& value) {
  return std::get<T>(value.content);
}

TEST(DcpReaderTest, UnevenAndEmptyShardsScalarsAndBfloat16AreRead) {
  const DcpReader reader(tiny());
  EXPECT_TRUE(at::equal(reader.tensor("model.a.weight"), counting({3, 4})));
  EXPECT_TRUE(at::equal(reader.tensor("model.one"), counting({1, 4})));
  EXPECT_TRUE(at::equal(reader.tensor("model.half"), counting({4}, at::kBFloat16)));
  EXPECT_TRUE(at::equal(reader.tensor("model.buf"), counting({5})));
  const at::Tensor step = reader.tensor("model.step");
  EXPECT_EQ(step.dim(), 0);
  EXPECT_EQ(step.item<float>(), 7);
}

TEST(DcpReaderTest, PlainValuesKeepTheirTypes) {
  const DcpReader reader(tiny());
  EXPECT_EQ(value_as<double>(reader.value("opt.lr")), 1e-5);
  const auto betas = value_as<TorchTuple>(reader.value("opt.betas"));
  ASSERT_EQ(betas.items.size(), 2U);
  EXPECT_EQ(value_as<double>(betas.items[1]), 0.999);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(reader.value("opt.none").content));
  EXPECT_TRUE(value_as<bool>(reader.value("opt.flag")));
  EXPECT_EQ(value_as<std::int64_t>(reader.value("opt.n")), 3);
  const auto names = value_as<TorchList>(reader.value("opt.names"));
  ASSERT_EQ(names.items.size(), 2U);
  EXPECT_EQ(value_as<std::string>(names.items[0]), "x");
}

TEST(DcpReaderTest, TheLeastThatTorchAcceptsIsRead) {
  const DcpReader reader(test_data("dcp/dcp_foreign"));
  EXPECT_TRUE(at::equal(reader.tensor("model.w"), counting({3, 4})));
  EXPECT_TRUE(at::equal(reader.tensor("model.b"), counting({5})));
  EXPECT_EQ(value_as<double>(reader.value("model.lr")), 1e-5);
  EXPECT_EQ(reader.metadata().find("model.w")->path, std::nullopt);
}

TEST(DcpReaderTest, ShardsOfATrainedModelAreItsGatheredWeights) {
  const DcpReader reader(fsdp2() / "pretrained_model/pytorch_model_fsdp_0");
  const serialization::SafetensorsFile gathered(fsdp2() / "pretrained_model/model.safetensors");
  EXPECT_EQ(reader.metadata().entries().size(), gathered.names().size());
  for (const std::string& name : gathered.names())
    EXPECT_TRUE(at::equal(reader.tensor("model." + name), gathered.view(name))) << name;
}

TEST(DcpReaderTest, TheOptimizersGroupsAndPathsAreRead) {
  const DcpReader reader(fsdp2() / "training_state/optimizer_0");
  EXPECT_EQ(value_as<double>(reader.value("optimizer.param_groups.0.lr")), 1e-5);
  const auto names = value_as<TorchList>(reader.value("optimizer.param_groups.0.params"));
  EXPECT_GT(names.items.size(), 50U);
  const DcpEntry* entry = reader.metadata().find("optimizer.param_groups.0.lr");
  ASSERT_TRUE(entry && entry->path);
  EXPECT_THAT(*entry->path, ElementsAre(DcpPath::value_type(std::string("optimizer")),
                                        DcpPath::value_type(std::string("param_groups")),
                                        DcpPath::value_type(std::int64_t{0}),
                                        DcpPath::value_type(std::string("lr"))));
  EXPECT_EQ(reader.tensor("optimizer.state.model.action_head.bias.step").item<float>(), 8);
}

class MadeDcpTest : public TestFolder {
 protected:
  MadeDcp made_{folder_ / "shards"};

  std::string error() {
    made_.finish();
    return error_of([&] { DcpReader reader(made_.folder()); });
  }
};

TEST_F(MadeDcpTest, AnyPartOfATensorIsAssembledFromTheChunksThatItTouches) {
  const at::Tensor whole = counting({5, 4, 3});
  made_.rows("rows", whole, {2, 3, 5});
  made_.blocks("grid", whole,
               {{{0, 0, 0}, {2, 4, 1}},
                {{2, 0, 0}, {3, 4, 1}},
                {{0, 0, 1}, {5, 1, 2}},
                {{0, 1, 1}, {5, 3, 2}}});
  made_.finish();
  const DcpReader reader(made_.folder());
  for (const char* name : {"model.rows", "model.grid"}) {
    EXPECT_TRUE(at::equal(reader.tensor(name), whole));
    for (std::int64_t begin = 0; begin <= 5; ++begin)
      for (std::int64_t end = begin; end <= 5; ++end) {
        const DcpBlock block{{begin, 1, 0}, {end - begin, 3, 2}};
        const at::Tensor part = reader.tensor(name, block);
        EXPECT_TRUE(part.is_contiguous());
        EXPECT_TRUE(
            at::equal(part, whole.narrow(0, begin, end - begin).narrow(1, 1, 3).narrow(2, 0, 2)))
            << name << begin << end;
      }
  }
  EXPECT_THAT(error_of([&] {
                reader.tensor("model.rows", {{4, 0, 0}, {2, 4, 3}});
              }),
              HasSubstr("does not lie within model.rows of size [5, 4, 3]"));
}

TEST_F(MadeDcpTest, EveryDtypeIsRead) {
  const std::vector<at::ScalarType> dtypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                              at::kLong,  at::kInt,    at::kBool, at::kByte};
  for (const at::ScalarType dtype : dtypes)
    made_.rows(c10::toString(dtype), counting({2, 3}, dtype), {1});
  made_.finish();
  const DcpReader reader(made_.folder());
  for (const at::ScalarType dtype : dtypes) {
    const at::Tensor tensor = reader.tensor(fmt::format("model.{}", c10::toString(dtype)));
    EXPECT_EQ(tensor.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(tensor, counting({2, 3}, dtype)));
  }
}

TEST_F(MadeDcpTest, MetadataOfPythonsThatNameConstantsIsRead) {
  made_.rows("w", counting({4, 2}), {2});
  write("shards/.metadata", MadeMetadata::pickle(made_.entries(), true));
  EXPECT_TRUE(at::equal(DcpReader(made_.folder()).tensor("model.w"), counting({4, 2})));
}

TEST_F(MadeDcpTest, ATensorWithoutElementsNeedsNoItem) {
  made_.rows("empty", at::zeros({0, 4}), {});
  made_.last_tensor().chunks[0].item = {};
  made_.finish();
  EXPECT_EQ(DcpReader(made_.folder()).tensor("model.empty").sizes(), at::IntArrayRef({0, 4}));
}

TEST_F(MadeDcpTest, MissingElementsAreNamed) {
  made_.rows("w", counting({4, 2}), {1, 3});
  made_.last_tensor().chunks.erase(made_.last_tensor().chunks.begin() + 1);
  EXPECT_THAT(error(), AllOf(HasSubstr("model.w"), HasSubstr("4 of its 8 elements are missing")));
}

TEST_F(MadeDcpTest, ElementsThatAreSavedTwiceAreNamed) {
  made_.rows("w", counting({4, 2}), {2});
  made_.last_tensor().chunks[1].block = {{1, 0}, {3, 2}};
  EXPECT_THAT(error(), AllOf(HasSubstr("model.w: elements are saved twice"),
                             HasSubstr("the chunks at [0, 0] (size [2, 2]) and [1, 0] (size [3, "
                                       "2]) overlap")));
}

TEST_F(MadeDcpTest, AScalarThatIsSavedTwiceIsNamed) {
  made_.blocks("s", at::ones({}), {{{}, {}}});
  made_.last_tensor().chunks.push_back(made_.last_tensor().chunks[0]);
  made_.last_tensor().chunks[1].item.file = "";
  EXPECT_THAT(error(), HasSubstr("model.s: a scalar is saved 2 times"));
}

TEST_F(MadeDcpTest, AChunkOutsideItsTensorIsNamed) {
  made_.rows("w", counting({4, 2}), {2});
  made_.last_tensor().chunks[1].block.offsets = {3, 0};
  EXPECT_THAT(error(), HasSubstr("model.w: its chunk at [3, 0] of size [2, 2] does not lie within "
                                 "its size [4, 2]"));
}

TEST_F(MadeDcpTest, AChunkWithoutAnItemIsNamed) {
  made_.rows("w", counting({4, 2}), {2});
  made_.last_tensor().chunks[1].item.file = "";
  EXPECT_THAT(error(), HasSubstr("storage_data lacks the chunk of model.w at [2, 0]"));
}

TEST_F(MadeDcpTest, ASizeBeyondAllMemoryIsRefusedBeforeItIsAllocated) {
  made_.rows("w", counting({4, 2}), {});
  made_.last_tensor().size = {std::int64_t{1} << 40, 2};
  made_.last_tensor().chunks[0].block.sizes = made_.last_tensor().size;
  EXPECT_THAT(error(), AllOf(HasSubstr("model.w: its chunk at [0, 0] has"),
                             HasSubstr("make 8796093022208")));
  made_.last_tensor().size = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_THAT(error(), HasSubstr("model.w: its size overflows"));
}

TEST_F(MadeDcpTest, AFileOfAnotherFolderIsRefused) {
  for (const char* file : {"../__0_0.distcp", "/etc/passwd", "..", "a/b"}) {
    MadeDcp made(folder_ / "other");
    made.rows("w", counting({4, 2}), {});
    made.last_tensor().chunks[0].item.file = file;
    made.finish();
    EXPECT_THAT(error_of([&] { DcpReader reader(made.folder()); }),
                HasSubstr("expected the name of a file beside .metadata"));
  }
}

TEST_F(MadeDcpTest, AMissingOrShortFileIsNamedBeforeAnythingIsRead) {
  made_.rows("w", counting({4, 2}), {2});
  made_.finish();
  const fs::path file = made_.folder() / "__1_0.distcp";
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_THAT(error(), AllOf(HasSubstr("__1_0.distcp"), HasSubstr("but model.w ends at byte"),
                             HasSubstr("cut off")));
  fs::remove(file);
  EXPECT_THAT(error(), AllOf(HasSubstr("__1_0.distcp"), HasSubstr("copy the whole folder")));
}

TEST_F(MadeDcpTest, ItemsThatOverlapAreRefused) {
  made_.rows("a", counting({4, 2}), {});
  made_.rows("b", counting({4, 2}), {});
  made_.last_tensor().chunks[0].item.offset -= 1;
  EXPECT_THAT(error(), HasSubstr("model.a and model.b overlap"));
}

TEST_F(MadeDcpTest, AnotherTensorThanAnnouncedIsRefused) {
  made_.rows("a", counting({4, 2}), {});
  made_.last_tensor().size = {2, 4};
  made_.last_tensor().chunks[0].block.sizes = {2, 4};
  made_.rows("b", counting({4, 2}), {});
  made_.last_tensor().dtype = at::kInt;
  made_.finish();
  const DcpReader reader(made_.folder());
  EXPECT_THAT(error_of([&] { reader.tensor("model.a"); }),
              HasSubstr("is a tensor of Float [4, 2], but .metadata says Float [2, 4]"));
  EXPECT_THAT(error_of([&] { reader.tensor("model.b"); }),
              HasSubstr("is a tensor of Float [4, 2], but .metadata says Int [4, 2]"));
}

TEST_F(MadeDcpTest, WhatIsNotThereIsNamed) {
  made_.rows("w", counting({4, 2}), {});
  made_.value("v", 1.5);
  made_.finish();
  const DcpReader reader(made_.folder());
  EXPECT_THAT(error_of([&] { reader.tensor("w"); }), HasSubstr("holds no tensor w"));
  EXPECT_THAT(error_of([&] { reader.tensor("model.v"); }),
              HasSubstr("a plain value, not a tensor"));
  EXPECT_THAT(error_of([&] { reader.value("w"); }), HasSubstr("holds no value w"));
  EXPECT_THAT(error_of([&] { reader.value("model.w"); }), HasSubstr("a tensor, not a plain value"));
}

TEST_F(MadeDcpTest, TwoEntriesOfOneNameAreRefused) {
  made_.rows("w", counting({4, 2}), {});
  made_.entries().push_back(made_.entries().front());
  made_.last_tensor().chunks[0].item.file = "";
  EXPECT_THAT(error(), HasSubstr("model.w is described twice"));
}

TEST_F(MadeDcpTest, AFolderWithoutMetadataIsASaveThatWasCutOff) {
  EXPECT_THAT(error_of([&] { DcpReader reader(made_.folder()); }),
              HasSubstr("lacks .metadata, which is written last"));
  EXPECT_THAT(error_of([&] { DcpReader reader(folder_ / "none"); }), HasSubstr("no such folder"));
}

TEST_F(MadeDcpTest, AClassThatMetadataDoesNotNeedIsNotRun) {
  serialization::PickleWriter writer;
  writer.begin_object("os", "system");
  writer.begin_tuple(1);
  writer.text("true");
  writer.end_tuple();
  writer.call();
  writer.end_object();
  write("shards/.metadata", writer.finish());
  EXPECT_THAT(error_of([&] { DcpReader reader(made_.folder()); }),
              AllOf(HasSubstr("names os.system"), HasSubstr("it was not run")));
}

TEST_F(MadeDcpTest, APickleOfSomethingElseIsNoMetadata) {
  serialization::PickleWriter writer;
  writer.none();
  write("shards/.metadata", writer.finish());
  EXPECT_THAT(error_of([&] { DcpReader reader(made_.folder()); }),
              HasSubstr(".metadata: expected a Metadata, found None"));
}

/// A str in a pickle, its length before it.
std::string pickled_text(const std::string& text) {
  return std::string("X") + static_cast<char>(text.size()) + std::string(3, '\0') + text;
}

class ChangedMetadata : public MadeDcpTest {
 protected:
  /// What is said after one str in the `.metadata` has become another.
  std::string error_when(const std::string& text, const std::string& other) {
    std::string pickle = MadeMetadata::pickle(made_.entries());
    const std::size_t at = pickle.find(pickled_text(text));
    if (at == std::string::npos) return "no such text";
    pickle.replace(at, pickled_text(text).size(), pickled_text(other));
    write("shards/.metadata", pickle);
    return error_of([&] { DcpReader reader(made_.folder()); });
  }
};

TEST_F(ChangedMetadata, WhatIsMissingOrNotSupportedIsNamed) {
  made_.rows("w", counting({4, 2}), {2});
  EXPECT_THAT(error_when("storage_data", "storage"),
              HasSubstr("a Metadata lacks its storage_data"));
  EXPECT_THAT(error_when("fqn", "name"), HasSubstr("a MetadataIndex lacks its fqn"));
  EXPECT_THAT(error_when("offsets", "begins"),
              HasSubstr("a ChunkStorageMetadata lacks its offsets"));
  EXPECT_THAT(error_when("relative_path", "transform_descriptors"),
              HasSubstr("model.w was written through extensions (compression)"));
  EXPECT_THAT(error_when("torch.strided", "torch.sparse_coo"),
              HasSubstr("model.w has the layout torch.sparse_coo"));
}

// --- damage -------------------------------------------------------------------------------------

class DcpDamage : public TestFolder {
 protected:
  /// Opens `folder_` and reads everything in it; true when it was refused. Anything but Error fails
  /// the test.
  bool refused() const {
    try {
      const DcpReader reader(folder_);
      for (const DcpEntry& entry : reader.metadata().entries())
        if (std::holds_alternative<DcpTensor>(entry.content))
          reader.tensor(entry.name);
        else
          reader.value(entry.name);
    } catch (const Error&) {
      return true;
    }
    return false;
  }

  /// Cuts `file` at every place and changes every `stride`th byte. Returns how many were refused.
  int damage(const char* file, std::size_t stride) const {
    const std::string content = read_text_file(folder_ / file);
    int count = 0;
    for (std::size_t length = 0; length < content.size(); length += stride) {
      write(file, content.substr(0, length));
      const bool cut_refused = refused();
      EXPECT_TRUE(cut_refused) << file << " cut at " << length;
      count += cut_refused;
    }
    for (std::size_t i = 0; i < content.size(); i += stride) {
      const auto original = static_cast<unsigned char>(content[i]);
      for (const int value : {0x00, 0xff, original ^ 0x01, original ^ 0x80, '(' + 0}) {
        if (value == original) continue;
        std::string changed = content;
        changed[i] = static_cast<char>(value);
        write(file, changed);
        count += refused();
      }
    }
    write(file, content);
    EXPECT_FALSE(refused());
    return count;
  }

  void copy(const fs::path& folder) const {
    fs::copy(folder, folder_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
};

TEST_F(DcpDamage, MetadataNeverCrashes) {
  copy(tiny());
  EXPECT_GT(damage(".metadata", 1), 2437);
}

TEST_F(DcpDamage, MetadataOfOtherWritersNeverCrashes) {
  copy(test_data("dcp/dcp_foreign"));
  EXPECT_GT(damage(".metadata", 1), 2229);
}

TEST_F(DcpDamage, FilesNeverCrash) {
  copy(test_data("dcp/dcp_foreign"));
  EXPECT_GT(damage("__0_0.distcp", 1), 667);
  EXPECT_GT(damage("__1_0.distcp", 1), 1672);
}

TEST_F(DcpDamage, FilesOfTorchNeverCrash) {
  copy(tiny());
  damage("__0_0.distcp", 13);
  damage("__1_0.distcp", 13);
}

}  // namespace
}  // namespace lerobot::checkpoint
