// lerobot-convert-dcp, as its users call it, on checkpoints that LeRobot wrote and on made ones.
#include "lerobot/checkpoint/dcp_convert.h"

#include <csignal>
#include <sys/resource.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/file_lock.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/checkpoint/convert_program.h"
#include "lerobot/checkpoint/layout.h"
#include "lerobot/serialization/safetensors.h"
#include "tests/checkpoint/made_dcp.h"
#include "tests/checkpoint/test_process.h"
#include "tests/serialization/test_files.h"

namespace lerobot::checkpoint {
namespace {

using serialization::SafetensorsFile;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr const char* kFsdp2 = "checkpoints/state_fsdp2/000008/pretrained_model";
constexpr const char* kHsdp4 = "checkpoints/state_hsdp4/000008/pretrained_model";

struct Result {
  int status;
  std::string out, errors;
};

Result run(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int status = convert_program(arguments);
  std::fflush(stdout);
  return {status, ::testing::internal::GetCapturedStdout(),
          ::testing::internal::GetCapturedStderr()};
}

/// A run with one checkpoint, 000008, in a folder whose name has spaces.
class DcpConvert : public TestFolder {
 protected:
  DcpConvert()
      : run_(folder_ / "a run"),
        checkpoint_(run_ / "checkpoints" / "000008"),
        model_(checkpoint_ / "pretrained_model") {
    fs::create_directories(model_);
    fs::create_symlink("000008", run_ / "checkpoints" / "last");
  }

  void copy(const char* pretrained_model) const {
    fs::copy(test_data(pretrained_model), model_, fs::copy_options::recursive);
  }

  /// Shards of two tensors, as `model.a` and `model.b`.
  MadeDcp made() const {
    write("a run/checkpoints/000008/pretrained_model/config.json", "{}");
    MadeDcp made(model_ / kShardedModelFolder);
    made.rows("b", at::arange(12, at::kFloat).reshape({3, 4}), {1, 3});
    made.rows("a", at::arange(6, at::kFloat).to(at::kBFloat16).reshape({6, 1}), {4});
    return made;
  }

  std::vector<std::string> names_in_model() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(model_))
      names.push_back(entry.path().filename().string());
    return names;
  }

  fs::path run_, checkpoint_, model_;
};

TEST_F(DcpConvert, TheFileIsTheGatheredOneToTheByte) {
  copy(kFsdp2);
  fs::remove(model_ / kModelFile);
  const Result result = run({"--checkpoint_dir", checkpoint_.string()});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Wrote " + (model_ / kModelFile).string() + "\n"),
                                HasSubstr("86 tensors, 0.2 MB")));
  EXPECT_EQ(read_text_file(model_ / kModelFile), read_text_file(test_data(kFsdp2) / kModelFile));
  EXPECT_TRUE(fs::exists(model_ / kShardedModelFolder / ".metadata"));
}

TEST_F(DcpConvert, ReplicasOfFourRanksMergeIntoTheWeightsOfTwo) {
  copy(kHsdp4);
  convert_dcp(model_);
  // The same run with the same global batch, its sums in another order: eight steps of Adam at a
  // rate of 1e-5 can part them by no more than this.
  constexpr double kTolerance = 1.6e-4;
  const SafetensorsFile ours(model_ / kModelFile), two(test_data(kFsdp2) / kModelFile);
  EXPECT_EQ(ours.names(), two.names());
  EXPECT_EQ(ours.metadata(), two.metadata());
  for (const std::string& name : two.names())
    EXPECT_TRUE(at::allclose(ours.view(name), two.view(name), 0, kTolerance)) << name;
}

TEST_F(DcpConvert, EveryFolderOfARunMeansItsLastCheckpoint) {
  copy(kFsdp2);
  for (const fs::path& path :
       {run_, run_ / "checkpoints", run_ / "checkpoints" / "last", checkpoint_, model_,
        run_ / "checkpoints" / "last" / "pretrained_model", model_ / kShardedModelFolder}) {
    fs::remove(model_ / kModelFile);
    EXPECT_EQ(run({"--checkpoint_dir=" + path.string()}).status, 0) << path;
    EXPECT_TRUE(fs::exists(model_ / kModelFile)) << path;
    fs::remove(model_ / kModelFile);
    EXPECT_EQ(run({"--checkpoint_dir=" + path.string() + "/"}).status, 0) << path;
    EXPECT_TRUE(fs::exists(model_ / kModelFile)) << path;
  }
}

TEST_F(DcpConvert, DtypesStayAndAnOlderFileIsReplaced) {
  made().finish();
  write("a run/checkpoints/000008/pretrained_model/model.safetensors", "older");
  const Converted converted = convert_dcp(model_);
  EXPECT_EQ(converted.total.tensors, 2U);
  EXPECT_EQ(converted.total.bytes, 12U * 4 + 6 * 2);
  const SafetensorsFile file(converted.file);
  EXPECT_THAT(file.names(), ElementsAre("b", "a"));  // larger elements first
  EXPECT_TRUE(at::equal(file.tensor("b"), at::arange(12, at::kFloat).reshape({3, 4})));
  EXPECT_EQ(file.dtype("a"), at::kBFloat16);
}

TEST_F(DcpConvert, NamesOfAWriterThatRecordedNoPathsAreLeRobots) {
  MadeDcp shards = made();
  for (DcpEntry& entry : shards.entries()) entry.path.reset();
  shards.finish();
  EXPECT_THAT(SafetensorsFile(convert_dcp(model_).file).names(), ElementsAre("b", "a"));
}

TEST_F(DcpConvert, NamesWithoutAnOuterDictionaryStay) {
  MadeDcp shards = made();
  for (DcpEntry& entry : shards.entries()) entry.path = DcpPath{entry.name};
  shards.finish();
  EXPECT_THAT(SafetensorsFile(convert_dcp(model_).file).names(), ElementsAre("model.b", "model.a"));
}

TEST_F(DcpConvert, NestedDictionariesAndPlainValuesAreRefused) {
  MadeDcp shards = made();
  shards.entries()[0].path = DcpPath{std::string("model"), std::string("deep"), std::string("b")};
  shards.finish();
  EXPECT_THAT(error_of([&] { convert_dcp(model_); }),
              HasSubstr("model.b lies in nested dictionaries"));
  shards.entries()[0].path = DcpPath{std::string("model"), std::string("b")};
  shards.value("lr", 0.1);
  shards.finish();
  EXPECT_THAT(error_of([&] { convert_dcp(model_); }), HasSubstr("model.lr is a plain value"));
}

TEST_F(DcpConvert, ShardsWithoutTensorsAreRefused) {
  const MadeDcp shards(model_ / kShardedModelFolder);
  shards.finish();
  EXPECT_THAT(error_of([&] { convert_dcp(model_); }), HasSubstr("holds no tensors"));
}

TEST_F(DcpConvert, ShardsOfAnAdapterMergeIntoAdapterModel) {
  write("a run/checkpoints/000008/pretrained_model/config.json", "{}");
  write("a run/checkpoints/000008/pretrained_model/adapter_config.json", R"({"r": 4})");
  const std::string name = "base_model.model.model.encoder.layers.0.linear1.lora_A.weight";
  MadeDcp shards(model_ / kShardedModelFolder);
  shards.rows(name, at::arange(8, at::kFloat).reshape({4, 2}), {2});
  shards.finish();
  const fs::path file = convert_dcp(model_).file;
  EXPECT_EQ(file, model_ / kAdapterModelFile);
  EXPECT_THAT(SafetensorsFile(file).names(), ElementsAre(name));
  EXPECT_FALSE(fs::exists(model_ / kModelFile));
}

TEST_F(DcpConvert, AnAdapterOfWhichOneRankSavedItsRowsIsRefused) {
  write("a run/checkpoints/000008/pretrained_model/adapter_config.json", R"({"r": 4})");
  MadeDcp shards(model_ / kShardedModelFolder);
  shards.rows("base_model.model.x.lora_A.weight", at::arange(4, at::kFloat).reshape({2, 2}), {});
  shards.finish();
  EXPECT_THAT(error_of([&] { convert_dcp(model_); }),
              AllOf(HasSubstr("lora_A.weight has 2 rows"), HasSubstr("says r=4")));
}

TEST_F(DcpConvert, ShardsAreRemovedOnlyWhenAsked) {
  copy(kFsdp2);
  const Result result = run({"--checkpoint_dir=" + run_.string(), "--delete_dcp", "true"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.out, HasSubstr("Removed the shards"));
  EXPECT_THAT(names_in_model(), ::testing::Not(::testing::Contains(HasSubstr("fsdp"))));
  EXPECT_EQ(read_text_file(model_ / kModelFile), read_text_file(test_data(kFsdp2) / kModelFile));
  const Result again = run({"--checkpoint_dir=" + run_.string()});
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.errors, HasSubstr("model.safetensors is there: nothing to convert"));
}

TEST_F(DcpConvert, AFailureLeavesTheFolderAsItWas) {
  const MadeDcp shards = made();
  shards.finish();
  write("a run/checkpoints/000008/pretrained_model/model.safetensors", "older");
  // A byte of the last tensor's data: only reading it shows the damage.
  const fs::path file = shards.folder() / "__1_0.distcp";
  std::string content = read_text_file(file);
  const std::size_t data = content.rfind(std::string("\x80\x40\xa0\x40", 4));  // 4.0, 5.0
  ASSERT_NE(data, std::string::npos);
  content[data] ^= 1;
  write("a run/checkpoints/000008/pretrained_model/pytorch_model_fsdp_0/__1_0.distcp", content);
  const Result result = run({"--checkpoint_dir=" + run_.string(), "--delete_dcp=true"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("model.a at [4, 0]"));
  EXPECT_THAT(names_in_model(),
              UnorderedElementsAre("config.json", "model.safetensors", "pytorch_model_fsdp_0"));
  EXPECT_EQ(read_text_file(model_ / kModelFile), "older");
}

TEST_F(DcpConvert, AFullDiskLosesNothing) {
  copy(kFsdp2);
  const std::string before = read_text_file(model_ / kModelFile);
  const std::vector<std::string> names = names_in_model();
  EXPECT_THAT(in_child([&] {
                const rlimit limit{100'000, 100'000};
                ::setrlimit(RLIMIT_FSIZE, &limit);
                ::signal(SIGXFSZ, SIG_IGN);
                convert_dcp(model_, {.delete_dcp = true, .progress = {}});
                return std::string("done");
              }),
              HasSubstr("cannot write: File too large"));
  EXPECT_EQ(names_in_model(), names);
  EXPECT_EQ(read_text_file(model_ / kModelFile), before);
}

TEST_F(DcpConvert, AnInterruptionLeavesNothingBehind) {
  made().finish();
  const InterruptGuard guard("");
  std::size_t seen = 0;
  ConvertOptions options;
  options.progress = [&](const ConvertProgress& progress) {
    seen = progress.tensors;
    EXPECT_EQ(progress.all_tensors, 2U);
    if (progress.tensors == 1) ::raise(SIGINT);
    throw_when_interrupted();
  };
  EXPECT_THROW(convert_dcp(model_, options), Interrupted);
  EXPECT_EQ(seen, 1U);
  EXPECT_THAT(names_in_model(), UnorderedElementsAre("config.json", "pytorch_model_fsdp_0"));
}

TEST_F(DcpConvert, WhatKilledConversionsLeftIsRemovedAndOthersAreLeftAlone) {
  made().finish();
  write("a run/checkpoints/000008/pretrained_model/.model.safetensors.tmp-1", "abandoned");
  const UseLock used(
      write("a run/checkpoints/000008/pretrained_model/.model.safetensors.tmp-2", "in use"));
  convert_dcp(model_);
  EXPECT_THAT(names_in_model(),
              UnorderedElementsAre("config.json", "pytorch_model_fsdp_0", "model.safetensors",
                                   ".model.safetensors.tmp-2"));
}

TEST_F(DcpConvert, FoldersThatAreNoShardedCheckpointAreNamed) {
  EXPECT_THAT(run({"--checkpoint_dir=" + (folder_ / "none").string()}).errors,
              HasSubstr("no such folder"));
  EXPECT_THAT(run({"--checkpoint_dir=" + folder_.string()}).errors, HasSubstr("no config.json"));
  write("a run/checkpoints/000008/pretrained_model/config.json", "{}");
  const Result result = run({"--checkpoint_dir=" + run_.string()});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("holds no shards (pytorch_model_fsdp_0): is it a checkpoint "
                                       "of a sharded run?"));
}

TEST(DcpConvertCommandLine, MistakesAreNamedTogether) {
  const Result result = run({"--checkpoint_dirs=x", "--delete_dcp=maybe", "--push_to_hub=a/b/c"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors,
              AllOf(HasSubstr("unknown option --checkpoint_dirs; did you mean --checkpoint_dir?"),
                    HasSubstr("--delete_dcp=maybe: expected true or false"),
                    HasSubstr("--push_to_hub: \"a/b/c\" is not the name of a model")));
  EXPECT_THAT(run({"--checkpoint_dir=x", "--push_to_hub=policy"}).errors,
              HasSubstr("--push_to_hub=policy: expected OWNER/NAME"));
  EXPECT_THAT(run({}).errors, HasSubstr("--checkpoint_dir is required"));
  EXPECT_THAT(run({"--checkpoint_dir="}).errors, HasSubstr("--checkpoint_dir is empty"));
  EXPECT_EQ(run({"--checkpoint_dir"}).status, 2);
}

TEST(DcpConvertCommandLine, ValuesAreLeRobots) {
  const std::vector<std::string> words = {"--checkpoint_dir", "a b", "--delete_dcp=True",
                                          "--push_to_hub", "null"};
  const ConvertArguments arguments = parse_convert_arguments(words);
  EXPECT_EQ(arguments.checkpoint_dir, "a b");
  EXPECT_TRUE(arguments.delete_dcp);
  EXPECT_EQ(arguments.push_to_hub, std::nullopt);
  const std::vector<std::string> pushed = {"--checkpoint_dir=x", "--push_to_hub=me/policy"};
  EXPECT_EQ(parse_convert_arguments(pushed).push_to_hub, "me/policy");
}

TEST(DcpConvertCommandLine, HelpNamesOptionsAndDefaults) {
  const Result result = run({"--help"});
  EXPECT_EQ(result.status, 0);
  for (const char* text : {"--checkpoint_dir=", "--delete_dcp=", "(default: false)",
                           "--push_to_hub=", "(default: null)"})
    EXPECT_THAT(result.out, HasSubstr(text));
}

}  // namespace
}  // namespace lerobot::checkpoint
