#include "lerobot/serialization/torch_archive.h"

#include <cstring>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serialization/test_files.h"

namespace lerobot::serialization {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path data(const char* name) { return test_data(fs::path("serialization") / name); }

/// Bitwise equality, for types that have no comparison too.
bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.is_contiguous() &&
         b.is_contiguous() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

void expect_equal(const NamedTensors& tensors, const SafetensorsFile& expected) {
  EXPECT_EQ(tensors.size(), expected.names().size());
  for (const auto& [name, tensor] : tensors)
    EXPECT_TRUE(same(tensor, expected.tensor(name))) << name;
}

class TorchArchiveTest : public TestFolder {};

TEST_F(TorchArchiveTest, AStateDictionaryIsReadFromEveryForm) {
  const SafetensorsFile expected(data("state_dict.safetensors"));
  for (const char* name :
       {"state_dict_zip.pt", "state_dict_legacy.pt", "state_dict_parameters.pt",
        "state_dict_without_checksums.pt", "state_dict_rezipped.pt", "state_dict.safetensors"}) {
    SCOPED_TRACE(name);
    expect_equal(read_state_dict(data(name)), expected);
  }
  EXPECT_EQ(read_state_dict(data("state_dict_zip.pt"))[0].first, "0.weight");
}

TEST_F(TorchArchiveTest, ViewsStridesAndEveryDtypeAreRead) {
  const SafetensorsFile expected(data("tensors.safetensors"));
  expect_equal(read_state_dict(data("tensors.pt")), expected);
  expect_equal(read_state_dict(data("tensors_legacy.pt")), expected);
}

TEST_F(TorchArchiveTest, WhatIsNotAFileOfTensorsIsRefusedByName) {
  const auto refusal = [](const char* name) {
    return error_of([&] { read_state_dict(data(name)); });
  };
  EXPECT_THAT(refusal("evil.pt"), AllOf(HasSubstr("evil.pt"), HasSubstr("posix.system")));
  EXPECT_THAT(refusal("evil_legacy.pt"), HasSubstr("posix.system"));
  EXPECT_THAT(refusal("state_dict_compressed.pt"),
              AllOf(HasSubstr("state_dict_zip/data.pkl"), HasSubstr("compressed (method 8)")));
  EXPECT_THAT(refusal("big_endian.pt"), HasSubstr("byte order big"));
  EXPECT_THAT(refusal("not_torch.pkl"), HasSubstr("not one of torch.save"));
  EXPECT_THAT(refusal("values.pt"), HasSubstr("none is None, expected a tensor"));
  EXPECT_THAT(refusal("not_flat.pt"), HasSubstr("model is a dict, expected a tensor"));
  EXPECT_THAT(refusal("long_memo.pt"), HasSubstr("holds a list, expected a state dictionary"));
  EXPECT_THAT(error_of([&] { read_state_dict(write("x", "hello")); }),
              HasSubstr("neither a zip archive nor a pickle"));
  EXPECT_THAT(error_of([&] { read_state_dict(write("x", "")); }),
              HasSubstr("neither a zip archive nor a pickle"));
  EXPECT_THAT(error_of([&] {
                read_state_dict(write("x", "version https://git-lfs.github.com/spec/v1\n"));
              }),
              HasSubstr("git lfs pull"));
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_THAT(error_of([&] { read_state_dict(write("x", tar)); }), HasSubstr("tar archive"));
  EXPECT_THAT(error_of([&] { read_state_dict(folder_ / "absent"); }), HasSubstr("No such file"));
}

TEST_F(TorchArchiveTest, ADamagedStorageIsSeenByItsChecksum) {
  std::string bytes = read_text_file(data("state_dict_zip.pt"));
  const std::size_t storage = bytes.find("data/0");
  ASSERT_NE(storage, std::string::npos);
  bytes[storage + 64] = static_cast<char>(bytes[storage + 64] ^ 1);
  EXPECT_THAT(error_of([&] { read_state_dict(write("x.pt", bytes)); }),
              AllOf(HasSubstr("data/0"), HasSubstr("checksum")));
}

TEST_F(TorchArchiveTest, ACutFileIsReported) {
  const std::string bytes = read_text_file(data("state_dict_zip.pt"));
  EXPECT_THAT(
      error_of([&] { read_state_dict(write("x.pt", std::string_view(bytes).substr(0, 2000))); }),
      HasSubstr("cut off"));
}

// --- pickles made by hand: tensors that lie about their storage ---------------------------------

/// An archive whose root is one tensor of `elements` stored floats.
std::string archive_with(std::int64_t elements, std::int64_t offset,
                         const std::vector<std::int64_t>& sizes,
                         const std::vector<std::int64_t>& strides) {
  PickleWriter pickle;
  const auto numbers = [&](const std::vector<std::int64_t>& values) {
    pickle.begin_tuple(values.size());
    for (const auto value : values) pickle.integer(value);
    pickle.end_tuple();
  };
  pickle.begin_object("torch._utils", "_rebuild_tensor_v2");
  pickle.begin_tuple(6);
  pickle.begin_persistent_id();
  pickle.begin_tuple(5);
  pickle.text("storage");
  pickle.global("torch", "FloatStorage");
  pickle.text("0");
  pickle.text("cuda:0");
  pickle.integer(elements);
  pickle.end_tuple();
  pickle.end_persistent_id();
  pickle.integer(offset);
  numbers(sizes);
  numbers(strides);
  pickle.boolean(false);
  pickle.none();
  pickle.end_tuple();
  pickle.call();
  pickle.end_object();
  std::string bytes;
  ZipWriter zip([&](std::span<const std::uint8_t> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  zip.add("archive/data.pkl", pickle.finish());
  zip.add("archive/data/0", std::string(4 * 6, '\0'));
  zip.finish();
  return bytes;
}

std::string tensor_refusal(std::int64_t elements, std::int64_t offset,
                           const std::vector<std::int64_t>& sizes,
                           const std::vector<std::int64_t>& strides) {
  const std::string bytes = archive_with(elements, offset, sizes, strides);
  return error_of([&] {
    const TorchArchive archive({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()},
                               "x.pt");
    archive.tensor(archive.root());
  });
}

TEST_F(TorchArchiveTest, ATensorMustLieInsideItsStorage) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_EQ(tensor_refusal(6, 0, {2, 3}, {3, 1}), "no error");
  EXPECT_EQ(tensor_refusal(6, 6, {0}, {1}), "no error");
  EXPECT_EQ(tensor_refusal(6, 5, {1000}, {0}), "no error");
  EXPECT_THAT(tensor_refusal(6, 1, {2, 3}, {3, 1}),
              HasSubstr("reaches to byte 28 of storage 0, which has 24"));
  EXPECT_THAT(tensor_refusal(6, -1, {1}, {1}), HasSubstr("offset"));
  EXPECT_THAT(tensor_refusal(6, 0, {-1}, {1}), HasSubstr("size holds -1"));
  EXPECT_THAT(tensor_refusal(6, 0, {1}, {-1}), HasSubstr("stride holds -1"));
  EXPECT_THAT(tensor_refusal(6, 0, {1, 1}, {1}), HasSubstr("2 sizes and 1 strides"));
  EXPECT_THAT(tensor_refusal(6, 0, {kHuge, 8}, {1, 1}), HasSubstr("overflows"));
  EXPECT_THAT(tensor_refusal(6, 0, {2}, {kHuge}), HasSubstr("overflows"));
  EXPECT_THAT(tensor_refusal(6, kHuge, {1}, {1}), HasSubstr("overflows"));
  EXPECT_THAT(tensor_refusal(6, 0, {1 << 30}, {0}), HasSubstr("repeats"));
  EXPECT_THAT(tensor_refusal(7, 0, {1}, {1}), HasSubstr("storage 0 has 24 bytes, expected 28"));
  EXPECT_THAT(tensor_refusal(-1, 0, {1}, {1}), HasSubstr("size of storage 0"));
  EXPECT_THAT(tensor_refusal(kHuge, 0, {1}, {1}), HasSubstr("size of storage 0 overflows"));
  EXPECT_THAT(
      tensor_refusal(6, 0, std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1)),
      HasSubstr("65 sizes"));
}

// --- writing ------------------------------------------------------------------------------------

/// What was read, as a value that can be written.
TorchValue again(const TorchArchive& archive, const PickleValue& value) {
  if (TorchArchive::is_tensor(value)) return archive.tensor(value);
  if (const auto* flag = value.get<bool>()) return *flag;
  if (const auto* number = value.get<std::int64_t>()) return *number;
  if (const auto* number = value.get<double>()) return *number;
  if (const auto* text = value.get<std::string>()) return *text;
  if (const auto* list = value.get<PickleList>()) {
    TorchList result;
    for (const auto* item : list->items) result.items.push_back(again(archive, *item));
    return result;
  }
  if (const auto* tuple = value.get<PickleTuple>()) {
    TorchTuple result;
    for (const auto* item : tuple->items) result.items.push_back(again(archive, *item));
    return result;
  }
  if (const auto* dict = value.get<PickleDict>()) {
    TorchDict result;
    for (const auto& [key, item] : dict->items)
      result.items.emplace_back(*key->get<std::string>(), again(archive, *item));
    return result;
  }
  return {};
}

TEST_F(TorchArchiveTest, WhatTorchSavedIsSavedAgainToTheByte) {
  for (const char* name : {"values.pt", "long_memo.pt", "ema_state.pt", "not_flat.pt"}) {
    const TorchArchive archive(data(name));
    const fs::path copy = folder_ / name;
    save_torch_archive(copy, again(archive, archive.root()));
    EXPECT_TRUE(read_text_file(copy) == read_text_file(data(name))) << name;
  }
}

TEST_F(TorchArchiveTest, SharedStoragesViewsAndNewDtypesAreSavedAsTorchDoes) {
  // The tensors of make.py, sharing what they share there.
  const SafetensorsFile values(data("tensors.safetensors"));
  const at::Tensor base = values.tensor("base");
  TorchDict dict;
  const auto add = [&](const char* name, at::Tensor tensor) {
    dict.items.emplace_back(name, std::move(tensor));
  };
  add("base", base);
  add("row", base[1]);
  add("column", base.select(1, 2));
  add("transposed", base.t());
  add("expanded", at::arange(1, 3, at::kFloat).view({2, 1}).expand({2, 3}));
  add("channels_last", values.tensor("channels_last").contiguous(at::MemoryFormat::ChannelsLast));
  for (const char* name :
       {"scalar", "empty", "bool", "torch.float16", "torch.bfloat16", "torch.float64", "torch.int8",
        "torch.int16", "torch.int32", "torch.uint8", "torch.uint16", "torch.uint32", "torch.uint64",
        "torch.float8_e4m3fn", "torch.float8_e5m2", "torch.complex64"})
    add(name, values.tensor(name));
  save_torch_archive(folder_ / "tensors.pt", dict);
  EXPECT_TRUE(read_text_file(folder_ / "tensors.pt") == read_text_file(data("tensors.pt")));
}

TEST_F(TorchArchiveTest, ArchivesInMemoryAreReadInPlace) {
  std::string bytes = "x";  // an odd start: nothing may rely on alignment
  write_torch_archive(
      [&](std::span<const std::uint8_t> part) {
        bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
      },
      "archive", at::arange(5, at::kDouble));
  const TorchArchive archive(
      {reinterpret_cast<const std::uint8_t*>(bytes.data()) + 1, bytes.size() - 1}, "item");
  EXPECT_TRUE(at::equal(archive.tensor(archive.root()), at::arange(5, at::kDouble)));
  EXPECT_THAT(bytes, HasSubstr("archive/.data/serialization_id"));
}

TEST_F(TorchArchiveTest, AnUnknownDtypeLeavesNoFile) {
  EXPECT_THAT(error_of([&] {
                save_torch_archive(folder_ / "x.pt",
                                   at::zeros(2, at::ScalarType::Float4_e2m1fn_x2));
              }),
              HasSubstr("Float4"));
  EXPECT_FALSE(fs::exists(folder_ / "x.pt"));
}

}  // namespace
}  // namespace lerobot::serialization
