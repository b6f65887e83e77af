#include "lerobot/serialization/safetensors.h"

#include <csignal>
#include <cstring>
#include <sys/resource.h>
#include <sys/stat.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serialization/test_files.h"

namespace lerobot::serialization {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string length_bytes(std::uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof length};
}

std::string file_of(std::string_view header, std::size_t data_bytes) {
  return length_bytes(header.size()) + std::string(header) + std::string(data_bytes, '\0');
}

class Safetensors : public TestFolder {
 protected:
  /// The message that opening this header with so many bytes of data gives.
  std::string refusal(std::string_view header, std::size_t data_bytes) {
    return refusal_of_file(file_of(header, data_bytes));
  }
  std::string refusal_of_file(std::string_view content) {
    const fs::path path = write("x.safetensors", content);
    const std::string message = error_of([&] { SafetensorsFile{path}; });
    if (message != "no error") {
      EXPECT_THAT(message, HasSubstr(path.string()));
    }
    return message;
  }
};

TEST_F(Safetensors, EveryFileOfThePythonLibraryIsWrittenAgainToTheByte) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(LEROBOT_TEST_DATA)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path());
    const fs::path copy = folder_ / "copy.safetensors";
    // The library writes metadata of several keys in random order.
    if (file.metadata().size() > 1) continue;
    save_safetensors(copy, file.all(), file.metadata());
    EXPECT_TRUE(read_text_file(copy) == read_text_file(entry.path())) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 20);
}

TEST_F(Safetensors, EveryDtypeOfTorchIsReadWithTheLibrarysBytes) {
  const SafetensorsFile file(test_data("serialization/all_types.safetensors"));
  const std::pair<const char*, at::ScalarType> expected[] = {
      {"t_uint64", at::kUInt64},
      {"t_int64", at::kLong},
      {"t_float64", at::kDouble},
      {"t_complex64", at::kComplexFloat},
      {"t_float32", at::kFloat},
      {"t_uint32", at::kUInt32},
      {"t_int32", at::kInt},
      {"t_bfloat16", at::kBFloat16},
      {"t_float16", at::kHalf},
      {"t_uint16", at::kUInt16},
      {"t_int16", at::kShort},
      {"t_float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
      {"t_float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
      {"t_float8_e8m0fnu", at::kFloat8_e8m0fnu},
      {"t_float8_e4m3fn", at::kFloat8_e4m3fn},
      {"t_float8_e5m2", at::kFloat8_e5m2},
      {"t_int8", at::kChar},
      {"t_uint8", at::kByte},
      {"t_float4_e2m1fn_x2", at::ScalarType::Float4_e2m1fn_x2},
  };
  for (const auto& [name, dtype] : expected) {
    EXPECT_EQ(file.dtype(name), dtype) << name;
    const at::Tensor tensor = file.tensor(name);
    ASSERT_EQ(tensor.nbytes(), 16U) << name;
    EXPECT_THAT(tensor.sizes(), ElementsAre(16 / tensor.element_size())) << name;
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.const_data_ptr());
    for (int i = 0; i < 16; ++i) EXPECT_EQ(bytes[i], i + 1) << name;
  }
  EXPECT_EQ(file.tensor("t_bool").const_data_ptr<bool>()[1], false);
  EXPECT_THAT(file.shape("scalar"), IsEmpty());
  EXPECT_EQ(file.tensor("scalar").item<float>(), 1.5F);
  EXPECT_THAT(file.shape("empty"), ElementsAre(0));
  EXPECT_THAT(file.shape("empty_matrix"), ElementsAre(2, 0, 3));
  EXPECT_EQ(file.tensor("quote\" slash\\ tab\t bell\a é中").numel(), 6);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST_F(Safetensors, ATensorThatIsNotThereIsNamedWithTheFile) {
  const SafetensorsFile file(test_data("serialization/all_types.safetensors"));
  EXPECT_FALSE(file.contains("absent"));
  EXPECT_THAT(error_of([&] { file.tensor("absent"); }),
              AllOf(HasSubstr("all_types.safetensors"), HasSubstr("no tensor absent")));
}

TEST_F(Safetensors, AViewOutlivesTheFileObject) {
  const fs::path path = folder_ / "x.safetensors";
  save_safetensors(path, {{"a", at::arange(10, at::kFloat)}});
  at::Tensor view;
  {
    const SafetensorsFile file(path);
    view = file.view("a");
  }
  EXPECT_TRUE(at::equal(view, at::arange(10, at::kFloat)));
}

TEST_F(Safetensors, TensorsAtOddOffsetsAreRead) {
  // Sizes that the library would have sorted: U8 before F32 leaves the floats misaligned.
  std::string file = file_of(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
      5);
  const float value = 2.5F;
  std::memcpy(file.data() + file.size() - 4, &value, 4);
  const SafetensorsFile opened(write("x.safetensors", file));
  EXPECT_EQ(opened.tensor("b").item<float>(), 2.5F);
  EXPECT_EQ(opened.view("b").item<float>(), 2.5F);
  EXPECT_THAT(opened.names(), ElementsAre("a", "b"));
}

TEST_F(Safetensors, EmptyFilesOfTensorsAreFine) {
  const fs::path path = folder_ / "x.safetensors";
  save_safetensors(path, NamedTensors{});
  EXPECT_THAT(SafetensorsFile(path).names(), IsEmpty());
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), "no error");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0), "no error");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}   )", 0), "no error");
}

TEST_F(Safetensors, BrokenLengthsAreRefused) {
  EXPECT_THAT(refusal_of_file(""), HasSubstr("0 bytes are too few"));
  EXPECT_THAT(refusal_of_file("1234567"), HasSubstr("7 bytes are too few"));
  EXPECT_THAT(refusal_of_file(length_bytes(std::uint64_t{1} << 63) + "{}"),
              HasSubstr("9223372036854775808 bytes, the limit is 100000000"));
  EXPECT_THAT(refusal_of_file(length_bytes(100'000'001) + "{}"), HasSubstr("100000001"));
  EXPECT_THAT(refusal_of_file(length_bytes(100) + "{}"),
              HasSubstr("the header has 100 bytes, the file 10: it is cut off"));
  EXPECT_THAT(refusal_of_file("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(error_of([&] { SafetensorsFile{folder_ / "absent"}; }), HasSubstr("No such file"));
}

TEST_F(Safetensors, AHeaderAtTheLimitIsAccepted) {
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.append(100'000'000 - header.size(), ' ');
  EXPECT_EQ(refusal(header, 1), "no error");
}

TEST_F(Safetensors, HeadersThatAreNoTensorListsAreRefused) {
  EXPECT_THAT(refusal("", 0), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal("{", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{} x", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"\xff\":1}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(R"({"a":1})", 0), HasSubstr("expected an object, found the number 1"));
  EXPECT_THAT(refusal(R"({"a":null})", 0), HasSubstr("found null"));
  EXPECT_THAT(refusal(R"({"a":[]})", 0), HasSubstr("found an array"));
  EXPECT_THAT(refusal(R"({"a":true})", 0), HasSubstr("found a boolean"));
  EXPECT_THAT(refusal(R"({"a":"x"})", 0), HasSubstr("found the text \"x\""));
  EXPECT_THAT(refusal(R"({"__metadata__":{"format":1}})", 0),
              AllOf(HasSubstr("expected text"), HasSubstr("the number 1")));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
              HasSubstr("metadata key a occurs twice"));
  EXPECT_THAT(refusal(R"({"a":{}})", 0), HasSubstr("lacks one of dtype, shape and data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"x":1}})", 4),
              HasSubstr("unknown field x"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4),
              HasSubstr("dtype occurs twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":3,"shape":[],"data_offsets":[0,4]}})", 4),
              HasSubstr("expected the name of a dtype"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":3,"data_offsets":[0,4]}})", 4),
              HasSubstr("expected a list of numbers"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4),
              HasSubstr("found an array"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[4]}})", 4),
              HasSubstr("1 data_offsets, expected 2"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4,8]}})", 4),
              HasSubstr("found a third number"));
}

TEST_F(Safetensors, DuplicateKeysAreRefused) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2),
              HasSubstr("the key a occurs twice"));
}

TEST_F(Safetensors, NumbersOutOfRangeAreRefused) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1),
              AllOf(HasSubstr("shape of a"), HasSubstr("negative number -1")));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1),
              HasSubstr("the number 1.5"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1e2],"data_offsets":[0,1]}})", 1),
              HasSubstr("the number 1e2"));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}})", 1),
      HasSubstr("99999999999999999999"));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1),
      HasSubstr("out of range"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1),
              AllOf(HasSubstr("data_offsets of a"), HasSubstr("-1")));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      AllOf(HasSubstr("size of tensor a"), HasSubstr("overflows")));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296,4],"data_offsets":[0,0]}})",
              0),
      "no error");
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0),
      HasSubstr("overflows"));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0),
      HasSubstr("overflows"));
}

TEST_F(Safetensors, EveryByteBelongsToOneTensor) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2),
              HasSubstr("1 bytes behind the last tensor"));
  EXPECT_THAT(refusal("{}", 1), HasSubstr("1 bytes behind the last tensor"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2),
              HasSubstr("1 bytes before tensor a belong to no tensor"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                      3),
              HasSubstr("1 bytes before tensor b"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                      3),
              HasSubstr("tensors a and b overlap"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1),
              HasSubstr("ends before it begins: data_offsets [1, 0]"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("tensor a has 4 bytes, but its shape and dtype make 8"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7),
              HasSubstr("tensor a ends at byte 8 of 7: the file is cut off"));
}

TEST_F(Safetensors, DtypesThatTorchLacksAreNamed) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3),
              HasSubstr("tensor a has the dtype F6_E2M3"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}})", 0),
              HasSubstr("odd last dimension"));
}

TEST_F(Safetensors, ABoolIsZeroOrOne) {
  std::string content = file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 1);
  content.back() = 2;
  const SafetensorsFile file(write("x.safetensors", content));
  EXPECT_THAT(error_of([&] { file.tensor("a"); }), HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(error_of([&] { file.view("a"); }), HasSubstr("neither 0 nor 1"));
}

TEST_F(Safetensors, AnyStridesAreWrittenRowByRow) {
  const fs::path path = folder_ / "x.safetensors";
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  save_safetensors(path, {{"t", matrix.t()}, {"row", matrix[1]}});
  const SafetensorsFile file(path);
  EXPECT_TRUE(at::equal(file.tensor("t"), matrix.t()));
  EXPECT_TRUE(at::equal(file.tensor("row"), matrix[1]));
}

TEST_F(Safetensors, LazyTensorsAreMadeOneAtATime) {
  const fs::path path = folder_ / "x.safetensors";
  std::vector<LazyTensor> lazy;
  std::weak_ptr<int> alive;
  for (int i = 0; i < 3; ++i) {
    lazy.push_back({fmt::format("t{}", i), at::kFloat, {100}, [&alive, i] {
                      EXPECT_TRUE(alive.expired()) << "an earlier tensor is still held";
                      const auto token = std::make_shared<int>(i);
                      alive = token;
                      static std::vector<float> values(100);
                      return at::from_blob(
                          values.data(), {100}, [token](void*) {}, at::kFloat);
                    }});
  }
  save_safetensors(path, lazy);
  EXPECT_EQ(SafetensorsFile(path).names().size(), 3U);
}

TEST_F(Safetensors, WhatCannotBeWrittenIsNamed) {
  const fs::path path = folder_ / "x.safetensors";
  EXPECT_THAT(error_of([&] {
                save_safetensors(path, {{"a", at::ones(1)}, {"a", at::ones(2)}});
              }),
              HasSubstr("two tensors are named a"));
  EXPECT_THAT(error_of([&] {
                save_safetensors(path, {{"a", at::zeros(1, at::kComplexDouble)}});
              }),
              HasSubstr("ComplexDouble, which safetensors lacks"));
  EXPECT_THAT(error_of([&] {
                save_safetensors(path, {{"a", at::Tensor()}});
              }),
              HasSubstr("tensor a is not a dense tensor"));
  EXPECT_THAT(error_of([&] {
                save_safetensors(path, {{"\xff", at::ones(1)}});
              }),
              HasSubstr("not UTF-8"));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT(error_of([&] {
                save_safetensors(folder_ / "no/x", {{"a", at::ones(1)}});
              }),
              HasSubstr("cannot create"));
}

TEST_F(Safetensors, AFullDiskLeavesNoFile) {
  ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit small { 1 << 16, before.rlim_max };
  ::setrlimit(RLIMIT_FSIZE, &small);
  const fs::path path = folder_ / "x.safetensors";
  const std::string message = error_of([&] { save_safetensors(path, {{"a", at::ones(1 << 20)}}); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace lerobot::serialization
