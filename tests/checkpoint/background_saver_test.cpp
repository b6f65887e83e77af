#include "lerobot/checkpoint/background_saver.h"

#include <atomic>
#include <future>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/checkpoint_contents.h"
#include "tests/serialization/test_files.h"

namespace lerobot::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

class Background : public TestFolder {
 protected:
  fs::path checkpoints() const { return folder_ / "checkpoints"; }
  fs::path step(const char* name) const { return checkpoints() / name; }
  BackgroundSaver saver() { return BackgroundSaver(CheckpointWriter(checkpoints(), 100)); }
};

/// An entry that waits for `gate` before it writes.
FileEntry gated_file(std::shared_future<void> gate) {
  return {"gate", 0, [gate](const fs::path& path) {
            gate.wait();
            std::ofstream(path) << "x";
          }};
}

TEST_F(Background, TrainingGoesOnWithItsTensorsWhileTheOldValuesAreWritten) {
  auto background = saver();
  serialization::NamedTensors weights = small_tensors(1);
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  background.save(10, [&](HostCopies& copies) {
    auto files = small_checkpoint(10, copies.copy("model", weights));
    files.insert(files.begin(), gated_file(opened));
    return files;
  });
  EXPECT_FALSE(fs::exists(step("000010")));
  for (auto& [name, tensor] : weights) tensor.fill_(99);
  background.check();
  gate.set_value();
  EXPECT_THAT(background.wait(), Optional(step("000010")));
  EXPECT_EQ(value_in(step("000010")), 1.0F);
}

TEST_F(Background, TheNextSaveWaitsForTheOneInFlight) {
  auto background = saver();
  std::promise<void> gate;
  background.save(10, [&, opened = gate.get_future().share()](HostCopies&) {
    return std::vector<FileEntry>{gated_file(opened)};
  });
  std::atomic<bool> released = false;
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    released = true;
    gate.set_value();
  });
  background.save(20, [&](HostCopies& copies) {
    EXPECT_TRUE(released);
    EXPECT_TRUE(fs::exists(step("000010")));
    return small_checkpoint(20, copies.copy("model", small_tensors(20)));
  });
  release.join();
  EXPECT_THAT(background.wait(), Optional(step("000020")));
}

TEST_F(Background, AFailureIsReportedOnceAndThePreviousCheckpointStays) {
  auto background = saver();
  const auto save = [&](int step_number, bool broken) {
    background.save(step_number, [&](HostCopies& copies) {
      auto files = small_checkpoint(step_number, copies.copy("model", small_tensors(step_number)));
      if (broken) files.push_back({"x", 0, [](const fs::path&) { fail("the disk is gone"); }});
      return files;
    });
  };
  save(10, false);
  save(20, true);
  EXPECT_THAT(
      error_of([&] { background.wait(); }),
      AllOf(HasSubstr("step 20"), HasSubstr("the disk is gone"), HasSubstr("000010 is intact")));
  EXPECT_THAT(background.wait(), Optional(step("000010")));
  save(30, true);
  EXPECT_THAT(error_of([&] { save(40, false); }), HasSubstr("step 30"));
  save(50, true);
  std::string message = "no error";
  for (int i = 0; i < 1000 && message == "no error"; ++i) {
    message = error_of([&] { background.check(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(message, HasSubstr("step 50"));
  EXPECT_THAT(read_last(checkpoints()), Optional(step("000010")));
}

TEST_F(Background, TheEndOfTheObjectWaitsForTheSave) {
  {
    auto background = saver();
    background.save(10, [&](HostCopies& copies) {
      return small_checkpoint(10, copies.copy("model", small_tensors(10)));
    });
  }
  EXPECT_EQ(missing_part(step("000010")), std::nullopt);
}

TEST_F(Background, MemoryThatWasPreparedIsUsed) {
  auto background = saver();
  const auto weights = small_tensors(1);
  background.prepare({{"model", weights}, {"nothing", {}}});
  EXPECT_EQ(background.wait(), std::nullopt);
  background.save(10, [&](HostCopies& copies) {
    const auto before = copies.bytes();
    EXPECT_GT(before, 4000U);
    auto files = small_checkpoint(10, copies.copy("model", weights));
    EXPECT_EQ(copies.bytes(), before);
    return files;
  });
  background.wait();
  EXPECT_EQ(value_in(step("000010")), 1.0F);
}

TEST_F(Background, NothingIsInFlightAtFirst) {
  auto background = saver();
  background.check();
  EXPECT_EQ(background.wait(), std::nullopt);
}

TEST(HostCopiesTest, MemoryIsReusedUntilShapesChange) {
  HostCopies copies;
  const auto first = copies.copy("model", {{"a", at::full({10}, 1.0)}, {"b", at::full({3}, 2.0)}});
  const void* address = first[0].second.const_data_ptr();
  const auto bytes = copies.bytes();
  const auto second = copies.copy("model", {{"x", at::full({10}, 5.0)}, {"y", at::full({3}, 6.0)}});
  EXPECT_EQ(second[0].second.const_data_ptr(), address);
  EXPECT_EQ(second[0].first, "x");
  EXPECT_EQ(first[0].second[0].item<float>(), 5.0F) << "the first copies are only valid until then";
  EXPECT_EQ(copies.bytes(), bytes);
  // Another set has its own memory.
  copies.copy("optimizer", {{"a", at::full({10}, 7.0)}});
  EXPECT_EQ(second[0].second[0].item<float>(), 5.0F);
  // New shapes get new memory; what is still held stays valid.
  const auto third = copies.copy("model", {{"a", at::full({1000}, 8.0)}});
  EXPECT_NE(third[0].second.const_data_ptr(), address);
  EXPECT_EQ(second[0].second[0].item<float>(), 5.0F);
}

TEST(HostCopiesTest, TensorsOfManyPiecesAreWhole) {
  HostCopies copies;
  const serialization::NamedTensors tensors = {{"large", at::arange(5'000'001, at::kFloat)},
                                               {"half", at::arange(3'000'000).to(at::kHalf)}};
  const auto result = copies.copy("set", tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    EXPECT_TRUE(at::equal(result[i].second, tensors[i].second)) << tensors[i].first;
}

TEST(HostCopiesTest, AnyTensorBecomesAContiguousPlainOne) {
  HostCopies copies;
  at::Tensor weight = at::arange(6, at::kFloat).view({2, 3});
  weight.requires_grad_(true);
  const auto result = copies.copy(
      "set",
      {{"t", weight.t()}, {"scalar", at::full({}, 3, at::kLong)}, {"empty", at::empty({0, 4})}});
  EXPECT_TRUE(result[0].second.is_contiguous());
  EXPECT_FALSE(result[0].second.requires_grad());
  EXPECT_TRUE(at::equal(result[0].second, weight.t()));
  EXPECT_EQ(result[1].second.item<std::int64_t>(), 3);
  EXPECT_EQ(result[2].second.sizes(), (std::vector<std::int64_t>{0, 4}));
}

}  // namespace
}  // namespace lerobot::checkpoint
