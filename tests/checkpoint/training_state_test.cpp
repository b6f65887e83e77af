#include "lerobot/checkpoint/training_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/serialization/torch_archive.h"
#include "tests/serialization/test_files.h"

namespace lerobot::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path state_of_single() { return test_data("checkpoints/state_single/000008/training_state"); }

class TrainingStateTest : public TestFolder {
 protected:
  std::string step_refusal(std::string_view json) {
    return error_of([&] { read_training_step(write("training_step.json", json)); });
  }
};

// --- training_step.json -------------------------------------------------------------------------

TEST_F(TrainingStateTest, TheStepFileOfLeRobotIsWrittenAgainToTheByte) {
  const TrainingStep step = read_training_step(state_of_single() / "training_step.json");
  EXPECT_EQ(step.step, 8);
  EXPECT_EQ(step.dp_world_size, 1);
  EXPECT_EQ(step.batch_size, 4);
  EXPECT_EQ(step.grad_accum_steps, 1);
  EXPECT_EQ(step.ulysses_degree, 1);
  EXPECT_EQ(step.mixed_precision, "no");
  EXPECT_EQ(to_python_json(to_json(step), 4),
            read_text_file(state_of_single() / "training_step.json"));
}

TEST_F(TrainingStateTest, OldStepFilesAreRead) {
  const auto old = read_training_step(write("a.json", R"({"step": 7, "num_processes": 2})"));
  EXPECT_EQ(old.step, 7);
  EXPECT_EQ(old.dp_world_size, 2);
  EXPECT_EQ(old.batch_size, std::nullopt);
  const auto both = read_training_step(write(
      "b.json", R"({"step": 7, "num_processes": 2, "dp_world_size": 3, "parallelism": null})"));
  EXPECT_EQ(both.dp_world_size, 3);
}

TEST_F(TrainingStateTest, ThePrecisionIsRecordedWhenItIsNotTheDefault) {
  TrainingStep step;
  step.step = 1;
  EXPECT_FALSE(to_json(step).contains("mixed_precision"));
  step.mixed_precision = "bf16";
  const auto again = read_training_step(write("a.json", to_python_json(to_json(step), 4)));
  EXPECT_EQ(again.mixed_precision, "bf16");
}

TEST_F(TrainingStateTest, WrongStepFilesAreRefused) {
  EXPECT_THAT(step_refusal("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(step_refusal("{}"), HasSubstr("step is missing"));
  EXPECT_THAT(step_refusal(R"({"step": -1})"), HasSubstr("step is -1"));
  EXPECT_THAT(step_refusal(R"({"step": 1.5})"), HasSubstr("step is 1.5"));
  EXPECT_THAT(step_refusal(R"({"step": "8"})"), HasSubstr("step is \"8\""));
  EXPECT_THAT(step_refusal(R"({"step": 99999999999999999999})"), HasSubstr("step is"));
  EXPECT_THAT(step_refusal(R"({"step": 18446744073709551615})"), HasSubstr("step is"));
  EXPECT_THAT(step_refusal(R"({"step": 1, "parallelism": 2})"), HasSubstr("parallelism"));
  EXPECT_THAT(step_refusal(R"({"step": 1, "mixed_precision": 2})"), HasSubstr("mixed_precision"));
  EXPECT_THAT(step_refusal("{"), HasSubstr("training_step.json"));
}

// --- rng_state.safetensors ----------------------------------------------------------------------

TEST_F(TrainingStateTest, PythonAndNumpyAreSeededAsTheyDoThemselves) {
  struct Case {
    std::uint64_t seed;
    std::uint32_t first, second, last;
  };
  // random.seed(seed); random.getstate()[1]
  for (const Case& expected :
       {Case{0, 766982754, 497961170, 2902720905}, Case{1000, 3322676526, 3034739726, 2311025532},
        Case{4294967295, 2159790430, 4274725319, 2300076184},
        Case{1099511627783, 704317392, 723153410, 3977384188},
        Case{18446744073709551615U, 2932382577, 2128964480, 861141058}}) {
    const auto state = python_random_state(expected.seed);
    EXPECT_EQ(state.words[0], 2147483648U);
    EXPECT_EQ(state.words[1], expected.first) << expected.seed;
    EXPECT_EQ(state.words[2], expected.second) << expected.seed;
    EXPECT_EQ(state.words[623], expected.last) << expected.seed;
    EXPECT_EQ(state.position, 624U);
  }
  const auto numpy = numpy_random_state(4294967295);
  EXPECT_EQ(numpy.words[1], 1340201581U);
  EXPECT_EQ(numpy.words[623], 3413567280U);
  EXPECT_EQ(numpy.position, 624U);
  EXPECT_THAT(error_of([] { numpy_random_state(std::uint64_t{1} << 32); }),
              HasSubstr("numpy accepts 0 to 4294967295"));
}

TEST_F(TrainingStateTest, TheRngFileOfLeRobotIsWrittenAgainToTheByte) {
  const fs::path original = state_of_single() / "rng_state.safetensors";
  const RngState state = read_rng_state(original);
  serialization::save_safetensors(folder_ / "rng.safetensors", to_tensors(state));
  EXPECT_TRUE(read_text_file(folder_ / "rng.safetensors") == read_text_file(original));
  // That run never drew from Python's or numpy's generator: they are as seed 1000 left them.
  const RngState fresh = seeded_rng_state(1000);
  EXPECT_EQ(fresh.python.words, state.python.words);
  EXPECT_EQ(fresh.numpy.words, state.numpy.words);
}

TEST_F(TrainingStateTest, TorchContinuesFromASavedState) {
  // torch.set_rng_state(saved); torch.rand(3); torch.randn(20).sum()
  const RngState state = read_rng_state(state_of_single() / "rng_state.safetensors");
  restore_torch_rng(state);
  RngState again = state;
  capture_torch_rng(again);
  EXPECT_TRUE(at::equal(again.torch_cpu, state.torch_cpu));
  const at::Tensor drawn = at::rand({3});
  EXPECT_EQ(drawn[0].item<double>(), 0x1.dd2ec8p-2);
  EXPECT_EQ(drawn[1].item<double>(), 0x1.e13e2ap-1);
  EXPECT_EQ(drawn[2].item<double>(), 0x1.4b510cp-2);
  EXPECT_NEAR(at::randn({20}).sum().item<double>(), -0x1.30b4dcp+2, 1e-5);

  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(5);
  at::randn({3});  // leaves a cached normal behind
  capture_torch_rng(again);
  const at::Tensor expected = at::randn({5});
  restore_torch_rng(again);
  EXPECT_TRUE(at::equal(at::randn({5}), expected));
}

TEST_F(TrainingStateTest, WithoutASeedTheStatesComeFromTheSystem) {
  EXPECT_NE(seeded_rng_state(std::nullopt).python.words,
            seeded_rng_state(std::nullopt).python.words);
}

TEST_F(TrainingStateTest, DamagedRngFilesAreRefused) {
  const RngState good = seeded_rng_state(1);
  const auto refusal = [&](const std::string& key, const std::optional<at::Tensor>& value) {
    serialization::NamedTensors tensors;
    for (auto& [name, tensor] : to_tensors(good)) {
      if (name != key)
        tensors.emplace_back(name, tensor);
      else if (value)
        tensors.emplace_back(name, *value);
    }
    const fs::path path = folder_ / "rng.safetensors";
    serialization::save_safetensors(path, tensors);
    return error_of([&] { restore_torch_rng(read_rng_state(path)); });
  };
  EXPECT_EQ(refusal("", std::nullopt), "no error");
  for (const char* key :
       {"py_rng_version", "py_rng_state", "np_rng_state_values", "np_rng_state_index",
        "np_rng_has_gauss", "np_rng_cached_gaussian", "torch_rng_state"})
    EXPECT_THAT(refusal(key, std::nullopt), AllOf(HasSubstr(key), HasSubstr("is missing")));
  EXPECT_THAT(refusal("py_rng_version", at::full({1}, 2, at::kLong)), HasSubstr("expected 3 to 3"));
  EXPECT_THAT(refusal("py_rng_state", at::full({624}, 2, at::kLong)), HasSubstr("[624]"));
  EXPECT_THAT(refusal("py_rng_state", at::full({625}, -1, at::kLong)), HasSubstr("holds -1"));
  EXPECT_THAT(refusal("py_rng_state", at::full({625}, 625, at::kLong)),
              HasSubstr("holds 625, expected 0 to 624"));
  EXPECT_THAT(refusal("np_rng_state_values", at::full({624}, std::int64_t{1} << 32, at::kLong)),
              HasSubstr("4294967296"));
  EXPECT_THAT(refusal("np_rng_state_index", at::full({1}, 700, at::kLong)), HasSubstr("700"));
  EXPECT_THAT(refusal("np_rng_has_gauss", at::full({1}, 2, at::kLong)), HasSubstr("holds 2"));
  EXPECT_THAT(refusal("np_rng_cached_gaussian", at::full({1}, 2, at::kDouble)),
              HasSubstr("expected Float"));
  EXPECT_THAT(refusal("torch_rng_state", at::zeros({100}, at::kByte)), HasSubstr("5056"));
  EXPECT_THAT(refusal("torch_rng_state", at::zeros({5056}, at::kByte)),
              HasSubstr("CPU generator is damaged"));
}

// --- ema_state.pt -------------------------------------------------------------------------------

TEST_F(TrainingStateTest, TheEmaFileOfDiffusersIsWrittenAgainToTheByte) {
  const fs::path original = test_data("serialization/ema_state.pt");
  const optim::EmaState state = read_ema_state(original);
  EXPECT_EQ(state.decay, 0.9999);
  EXPECT_EQ(state.optimization_step, 20);
  EXPECT_EQ(state.update_after_step, 0);
  EXPECT_TRUE(state.use_ema_warmup);
  EXPECT_EQ(state.power, 0.75);
  EXPECT_EQ(state.shadow_params.size(), 100U);
  save_ema_state(folder_ / "ema_state.pt", state);
  EXPECT_TRUE(read_text_file(folder_ / "ema_state.pt") == read_text_file(original));
}

TEST_F(TrainingStateTest, DamagedEmaFilesAreRefused) {
  using serialization::TorchDict;
  using serialization::TorchList;
  using serialization::TorchValue;
  const auto refusal = [&](const std::string& key, std::optional<TorchValue> value) {
    TorchDict dict;
    dict.items = {{"decay", 0.9},
                  {"min_decay", std::int64_t{0}},
                  {"optimization_step", std::int64_t{1}},
                  {"update_after_step", std::int64_t{0}},
                  {"use_ema_warmup", false},
                  {"inv_gamma", 1.0},
                  {"power", 0.5},
                  {"shadow_params", TorchList{}}};
    std::erase_if(dict.items, [&](const auto& item) { return item.first == key; });
    if (value) dict.items.emplace_back(key, *value);
    save_torch_archive(folder_ / "ema_state.pt", dict);
    return error_of([&] { read_ema_state(folder_ / "ema_state.pt"); });
  };
  EXPECT_EQ(refusal("", std::nullopt), "no error");
  EXPECT_THAT(refusal("decay", std::nullopt), HasSubstr("decay is missing"));
  EXPECT_THAT(refusal("decay", "x"), HasSubstr("decay is a str, expected a float"));
  EXPECT_THAT(refusal("optimization_step", 1.0), HasSubstr("is a float, expected an int"));
  EXPECT_THAT(refusal("optimization_step", std::int64_t{-1}), HasSubstr("optimization_step"));
  EXPECT_THAT(refusal("use_ema_warmup", std::int64_t{1}), HasSubstr("expected a bool"));
  EXPECT_THAT(refusal("shadow_params", 1.0), HasSubstr("expected a list"));
  EXPECT_THAT(refusal("shadow_params", TorchList{{TorchValue(1.0)}}),
              HasSubstr("expected a tensor, found a float"));
  serialization::save_torch_archive(folder_ / "x.pt", 1.0);
  EXPECT_THAT(error_of([&] { read_ema_state(folder_ / "x.pt"); }),
              HasSubstr("holds a float, expected a dict"));
}

}  // namespace
}  // namespace lerobot::checkpoint
