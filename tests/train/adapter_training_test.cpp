// Runs that train an adapter on a frozen policy, alone and over several processes.
#include <cmath>
#include <map>

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "lerobot/checkpoint/state_source.h"
#include "tests/train/several_processes.h"

namespace lerobot::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kAdapter = "pretrained_model/adapter_model.safetensors";

class AdapterTraining : public SeveralProcesses {
 protected:
  static fs::path base() { return data() / "checkpoints/state_single/000040/pretrained_model"; }

  /// What LeRobot's run state_peft was started with; its base is the end of state_single.
  std::vector<std::string> adapted(const std::string& run, const fs::path& policy = base()) const {
    return {"--dataset.repo_id=facts/toy_state",
            "--dataset.root=" + (data() / "datasets/toy_state").string(),
            "--policy.path=" + policy.string(),
            "--policy.device=cpu",
            "--policy.push_to_hub=false",
            "--peft.method_type=LORA",
            "--peft.r=4",
            "--peft.target_modules=[\"linear1\",\"linear2\"]",
            "--peft.full_training_modules=[\"action_head\"]",
            "--batch_size=4",
            "--num_workers=0",
            "--seed=1000",
            "--log_freq=1",
            "--log_samples=true",
            "--save_freq=3",
            "--steps=6",
            "--output_dir=" + output(run).string(),
            "--job_name=" + run};
  }

  /// Without noise and without padding, so that a step depends on its samples alone. A greater rate
  /// shows in few steps what adapters do.
  std::vector<std::string> quiet(const std::string& run) const {
    return with(adapted(run, plain_base()), {"--policy.optimizer_lr=0.01",
                                             "--peft.target_modules=[\"linear1\",\"self_attn\"]"});
  }

  /// A policy without noise, made once a test.
  fs::path plain_base() const {
    if (!fs::exists(output("base"))) {
      const auto made = run_program(
          with(small_act("base", "toy_state"), {"--policy.use_vae=false", "--policy.chunk_size=1",
                                                "--policy.n_action_steps=1", "--steps=3"}));
      EXPECT_EQ(made.code, 0) << made.text;
    }
    return checkpoint("base", "000003") / "pretrained_model";
  }

  static double greatest_difference(const fs::path& a, const fs::path& b) {
    const auto first = checkpoint::open_tensor_file(a), second = checkpoint::open_tensor_file(b);
    EXPECT_THAT(first->names(), ::testing::UnorderedElementsAreArray(second->names()));
    double greatest = 0;
    for (const std::string& name : first->names())
      greatest = std::max(
          greatest, (first->tensor(name).to(at::kDouble) - second->tensor(name).to(at::kDouble))
                        .abs()
                        .max()
                        .item()
                        .toDouble());
    return greatest;
  }

  void expect_steps(const std::vector<Json>& actual, const std::vector<Json>& expected,
                    std::size_t first, double tolerance) const {
    ASSERT_EQ(actual.size() + first, expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const Json& want = expected[first + i];
      EXPECT_EQ(actual[i]["index"], want["index"]) << "step " << want["step"];
      for (const char* key : {"loss", "grad_norm"})
        EXPECT_NEAR(actual[i][key].get<double>(), want[key].get<double>(),
                    tolerance * want[key].get<double>())
            << key << " at step " << want["step"];
    }
  }

  std::vector<std::string> resume(const fs::path& checkpoint, const std::string& run) const {
    return {"--resume=true",      "--config_path=" + checkpoint.string(),
            "--log_samples=true", "--output_dir=" + output(run).string(),
            "--num_workers=0",    "--dataset.root=" + (data() / "datasets/toy_state").string()};
  }

  fs::path copy_of_checkpoint(const std::string& run, const std::string& step,
                              const std::string& to) const {
    fs::create_directories(output(to) / "checkpoints");
    fs::copy(checkpoint(run, step), checkpoint(to, step), fs::copy_options::recursive);
    return checkpoint(to, step);
  }

  Outcome convert(const fs::path& checkpoint) const {
    return run_command({program("lerobot-convert-dcp"), "--checkpoint_dir=" + checkpoint.string()},
                       "", [](pid_t) {});
  }
};

TEST_F(AdapterTraining, ReproducesLeRobotsRun) {
  const auto run = run_program(adapted("state_peft"));
  ASSERT_EQ(run.code, 0) << run.text;
  EXPECT_THAT(run.text, HasSubstr("num_learnable_params=3299"));
  expect_steps(samples("state_peft"), lines(data() / "logs/state_peft.rank0.jsonl"), 0, 1e-4);
  for (const char* step : {"000003", "000006"}) {
    const fs::path ours = checkpoint("state_peft", step);
    const fs::path theirs = data() / "checkpoints/state_peft" / step;
    EXPECT_LT(greatest_difference(ours / kAdapter, theirs / kAdapter), 2e-6) << step;
    EXPECT_LT(greatest_difference(ours / "training_state/optimizer_state.safetensors",
                                  theirs / "training_state/optimizer_state.safetensors"),
              1e-3)
        << step;
    for (const char* file :
         {"training_state/optimizer_param_groups.json", "training_state/rng_state.safetensors"})
      EXPECT_EQ(read_text_file(ours / file), read_text_file(theirs / file)) << file;
    EXPECT_FALSE(fs::exists(ours / "pretrained_model/model.safetensors"));
    Json adapter = read_json_file(ours / "pretrained_model/adapter_config.json");
    const Json expected = read_json_file(theirs / "pretrained_model/adapter_config.json");
    EXPECT_EQ(adapter["base_model_name_or_path"], base().string());
    adapter["base_model_name_or_path"] = expected["base_model_name_or_path"];
    EXPECT_EQ(adapter, expected);
    Json config = read_json_file(ours / "pretrained_model/config.json");
    config["pretrained_path"] = expected["base_model_name_or_path"];
    // LeRobot turns false into 0 when it loads a policy.
    config["replace_final_stride_with_dilation"] = 0;
    EXPECT_EQ(config, read_json_file(theirs / "pretrained_model/config.json"));
  }
}

TEST_F(AdapterTraining, ResumesLeRobotsCheckpointOnItsOwnLog) {
  fs::create_directories(output("theirs") / "checkpoints");
  fs::copy(data() / "checkpoints/state_peft/000003", checkpoint("theirs", "000003"),
           fs::copy_options::recursive);
  const auto flags = resume(checkpoint("theirs", "000003"), "theirs");
  const auto moved = run_program(flags);
  EXPECT_EQ(moved.code, 1);
  EXPECT_THAT(moved.text, AllOf(HasSubstr("checkpoints/state_single/last/pretrained_model"),
                                HasSubstr("base_model_name_or_path of")));

  const fs::path file = checkpoint("theirs", "000003") / "pretrained_model/adapter_config.json";
  Json adapter = read_json_file(file);
  adapter["base_model_name_or_path"] = base().string();
  write_file_atomic(file, to_python_json(adapter, 2));
  const auto resumed = run_program(flags);
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  expect_steps(samples("theirs"), lines(data() / "logs/state_peft.rank0.jsonl"), 3, 1e-4);
  EXPECT_LT(greatest_difference(checkpoint("theirs", "000006") / kAdapter,
                                data() / "checkpoints/state_peft/000006" / kAdapter),
            2e-6);
}

TEST_F(AdapterTraining, GoesOnAsIfItHadNotStopped) {
  const auto run = run_program(quiet("run"));
  ASSERT_EQ(run.code, 0) << run.text;
  const std::string before = read_text_file(plain_base() / "model.safetensors");
  const auto resumed =
      run_program(resume(copy_of_checkpoint("run", "000003", "resumed"), "resumed"));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  expect_steps(samples("resumed"), samples("run"), 3, 0);
  EXPECT_EQ(read_text_file(checkpoint("resumed", "000006") / kAdapter),
            read_text_file(checkpoint("run", "000006") / kAdapter));
  EXPECT_EQ(read_text_file(plain_base() / "model.safetensors"), before);
}

/// The greatest difference of the adapters after step 6, for processes that share one global batch.
TEST_F(AdapterTraining, IsTheSameInReplicasShardsAndOneProcess) {
  const std::vector<std::string> eight = {"--batch_size=8"};
  const auto one = run_program(with(quiet("one"), eight));
  ASSERT_EQ(one.code, 0) << one.text;
  const std::map<std::string, std::vector<std::string>> layouts = {
      {"ddp", {}}, {"fsdp", {"--parallelism.dp_shard=2", "--checkpoint_format=safetensors_dcp"}}};
  for (const auto& [name, flags] : layouts) {
    const auto run = launch(2, with(quiet(name), flags));
    ASSERT_EQ(run.code, 0) << run.text;
    const auto first = samples(name, 0), second = samples(name, 1), expected = samples("one");
    ASSERT_EQ(first.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double loss = (first[i]["loss"].get<double>() + second[i]["loss"].get<double>()) / 2;
      const double wanted = expected[i]["loss"].get<double>();
      EXPECT_NEAR(loss, wanted, 1e-5 * wanted) << name << " at step " << i + 1;
    }
    EXPECT_LT(greatest_difference(checkpoint(name, "000006") / kAdapter,
                                  checkpoint("one", "000006") / kAdapter),
              1e-4)
        << name;
  }
  // The shards hold the adapter alone, and merge into the same file.
  const fs::path sharded = checkpoint("fsdp", "000006");
  const std::string gathered = read_text_file(sharded / kAdapter);
  fs::remove(sharded / kAdapter);
  const auto converted = convert(sharded);
  ASSERT_EQ(converted.code, 0) << converted.text;
  EXPECT_EQ(greatest_difference(sharded / kAdapter, checkpoint("one", "000006") / kAdapter) < 1e-4,
            true);
  EXPECT_EQ(read_text_file(sharded / kAdapter).size(), gathered.size());
}

TEST_F(AdapterTraining, GoesOnInAnotherLayout) {
  const auto run =
      launch(2, with(quiet("run"), {"--parallelism.dp_shard=2", "--checkpoint_format=dcp"}));
  ASSERT_EQ(run.code, 0) << run.text;
  EXPECT_FALSE(fs::exists(checkpoint("run", "000003") / kAdapter));
  const auto expected = samples("run", 0);
  struct Layout {
    const char* name;
    int ranks;
    std::vector<std::string> flags;
  };
  for (const Layout& layout :
       {Layout{"one", 1, {"--batch_size=8"}},
        Layout{"ddp", 2, {"--parallelism.dp_replicate=2", "--parallelism.dp_shard=1"}},
        Layout{"hsdp",
               4,
               {"--batch_size=2", "--parallelism.dp_replicate=2", "--parallelism.dp_shard=2"}}}) {
    const fs::path from = copy_of_checkpoint("run", "000003", layout.name);
    const auto resumed = launch(layout.ranks, with(resume(from, layout.name), layout.flags));
    ASSERT_EQ(resumed.code, 0) << resumed.text;
    const auto actual = samples(layout.name, 0);
    ASSERT_EQ(actual.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      const double norm = expected[3 + i]["grad_norm"].get<double>();
      EXPECT_NEAR(actual[i]["grad_norm"].get<double>(), norm, 1e-4 * norm) << layout.name;
    }
  }
}

TEST_F(AdapterTraining, GoesOnWithinAnAccumulatedUpdateUnderShards) {
  const std::vector<std::string> flags = {"--parallelism.dp_shard=2", "--checkpoint_format=dcp",
                                          "--accelerator.gradient_accumulation.steps=2"};
  const auto run = launch(2, with(quiet("run"), flags));
  ASSERT_EQ(run.code, 0) << run.text;
  const auto resumed = launch(2, resume(copy_of_checkpoint("run", "000003", "resumed"), "resumed"));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  expect_steps(samples("resumed", 0), samples("run", 0), 3, 1e-6);
}

TEST_F(AdapterTraining, GoesOnFromAnAdapterOnNewData) {
  ASSERT_EQ(run_program(quiet("run")).code, 0);
  const fs::path adapter = checkpoint("run", "000006") / "pretrained_model";
  std::vector<std::string> flags;
  for (const std::string& flag : adapted("fine", adapter))
    if (!flag.starts_with("--peft.")) flags.push_back(flag);
  const auto fine =
      run_program(with(flags, {"--policy.optimizer_lr=0", "--dataset.episodes=[0,2]"}));
  ASSERT_EQ(fine.code, 0) << fine.text;
  // Without a learning rate it is the same adapter still, on the same base.
  EXPECT_EQ(greatest_difference(checkpoint("fine", "000006") / kAdapter,
                                adapter / "adapter_model.safetensors"),
            0);
  EXPECT_EQ(read_json_file(checkpoint("fine", "000006") / "pretrained_model/adapter_config.json"),
            read_json_file(adapter / "adapter_config.json"));
}

TEST_F(AdapterTraining, IsNeverAUnitApartFromItsLayer) {
  const auto numbers = [&](const std::string& name, const std::vector<std::string>& flags) {
    const auto run =
        launch(2, with(with(quiet(name), {"--steps=2", "--parallelism.dp_shard=2"}), flags));
    EXPECT_EQ(run.code, 0) << run.text;
    return samples(name, 0);
  };
  const auto expected = numbers("declared", {});
  ASSERT_EQ(expected.size(), 2U);
  expect_steps(numbers("small", {"--accelerator.fsdp.min_num_params=100"}), expected, 0, 1e-5);
  expect_steps(numbers("linear", {"--accelerator.fsdp.wrap_modules=[\"Linear\"]"}), expected, 0,
               1e-5);
}

TEST_F(AdapterTraining, KeepsIgnoredModulesOfPeftsNamesWhole) {
  const auto run = launch(
      2, with(quiet("run"),
              {"--parallelism.dp_shard=2", "--accelerator.fsdp.ignored_modules=.*action_head"}));
  ASSERT_EQ(run.code, 0) << run.text;
  const auto refused =
      launch(2, with(quiet("refused"), {"--parallelism.dp_shard=2",
                                        "--accelerator.fsdp.ignored_modules=model.action_head"}));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.text, HasSubstr("base_model.model."));
}

TEST_F(AdapterTraining, RefusesWhatDoesNotFit) {
  ASSERT_EQ(run_program(quiet("run")).code, 0);
  const auto refusal = [&](std::vector<std::string> flags, const std::vector<std::string>& more) {
    const auto outcome = run_program(with(std::move(flags), more));
    EXPECT_NE(outcome.code, 0);
    EXPECT_FALSE(fs::exists(output("no") / "checkpoints"));
    return outcome.text;
  };
  EXPECT_THAT(refusal(adapted("no"), {"--peft.method_type=IA3"}), HasSubstr("IA3"));
  EXPECT_THAT(refusal(adapted("no"), {"--peft.init_type=eva"}), HasSubstr("eva"));
  EXPECT_THAT(refusal(adapted("no"), {"--peft.target_modules=null"}),
              HasSubstr("Policy 'act' does not define default target_modules. Please pass "
                        "--peft.target_modules explicitly"));
  EXPECT_THAT(refusal(adapted("no"), {"--ema.enable=true"}), HasSubstr("ema.enable"));
  EXPECT_THAT(
      refusal(small_act("no", "toy_state"), {"--peft.r=4", "--peft.target_modules=[linear1]"}),
      HasSubstr("--policy.path"));
  EXPECT_THAT(refusal(adapted("no"), {"--policy.use_peft=true"}), HasSubstr("adapter_config.json"));

  // An adapter for other shapes, and one that has lost a tensor.
  const fs::path checkpoint_of_run = copy_of_checkpoint("run", "000006", "other");
  const fs::path config = checkpoint_of_run / "pretrained_model/adapter_config.json";
  Json adapter = read_json_file(config);
  adapter["r"] = 2;
  write_file_atomic(config, to_python_json(adapter, 2));
  EXPECT_THAT(refusal(resume(checkpoint_of_run, "no"), {"--steps=8"}),
              AllOf(HasSubstr("lora_A"), HasSubstr("shape")));
  adapter["r"] = 4;
  adapter["target_modules"] = {"linear1", "linear2", "self_attn"};
  write_file_atomic(config, to_python_json(adapter, 2));
  EXPECT_THAT(refusal(resume(checkpoint_of_run, "no"), {"--steps=8"}),
              AllOf(HasSubstr("lacks"), HasSubstr("linear2")));
  fs::remove(config);
  EXPECT_THAT(refusal(resume(checkpoint_of_run, "no"), {"--steps=8"}),
              HasSubstr("adapter_config.json"));
}

}  // namespace
}  // namespace lerobot::train
