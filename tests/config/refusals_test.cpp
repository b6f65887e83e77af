// Every message of the command line, provoked.
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "tests/config/command_lines.h"

namespace lerobot::config::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Refusal {
  const char* word;
  const char* message;  // the whole text
};

class OneWrongWord : public ::testing::TestWithParam<Refusal> {};

TEST_P(OneWrongWord, IsRefusedWithOneLine) {
  EXPECT_EQ(problems(plain({GetParam().word})), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Names, OneWrongWord,
    ::testing::Values(
        Refusal{"--batch_sze=8", "--batch_sze=8: unknown option; did you mean --batch_size?"},
        Refusal{"--batch-size=8", "--batch-size=8: unknown option; did you mean --batch_size?"},
        Refusal{"--dataset.repoid=a/b",
                "--dataset.repoid=a/b: unknown option; did you mean --dataset.repo_id?"},
        Refusal{"--lr=1e-4", "--lr=1e-4: unknown option; did you mean --optimizer.lr?"},
        Refusal{"--policy.chunksize=5",
                "--policy.chunksize=5: unknown option; did you mean --policy.chunk_size?"},
        Refusal{"--xyzzy=1", "--xyzzy=1: unknown option; --help lists all"},
        Refusal{"--policy.horizon=8",
                "--policy.horizon=8: unknown option of this policy; it belongs to "
                "--policy.type=diffusion"},
        Refusal{"--optimizer.momentum=0.9",
                "--optimizer.momentum=0.9: unknown option of this optimizer; it belongs to "
                "--optimizer.type=sgd"},
        Refusal{"--policy.input_features.observation.state.shape=[4]",
                "--policy.input_features.observation.state.shape=[4]: --policy.input_features is "
                "given as a whole: --policy.input_features='{name: value}'"},
        Refusal{"--checkpoint_path=/x",
                "--checkpoint_path=/x: is set by a resumed run itself; pass --config_path"},
        Refusal{"--resume", "--resume: needs a value: --resume=VALUE"},
        Refusal{"word", "word: unexpected; options are --name=value"},
        Refusal{"-x", "-x: unexpected; options are --name=value"},
        Refusal{"--=1", "--=1: unexpected; options are --name=value"},
        Refusal{"--dataset={rot: /x}",
                "--dataset={rot: /x}: unknown option dataset.rot; did you mean --dataset.root?"}));

INSTANTIATE_TEST_SUITE_P(
    Types, OneWrongWord,
    ::testing::Values(
        Refusal{"--steps=1e5", "--steps=1e5: expected an integer"},
        Refusal{"--steps=5.0", "--steps=5.0: expected an integer"},
        Refusal{"--steps=010", "--steps=010: expected an integer"},
        Refusal{"--steps=true", "--steps=true: expected an integer"},
        Refusal{"--steps=null", "--steps=null: expected an integer"},
        Refusal{"--steps=", "--steps=: expected an integer"},
        Refusal{"--steps=99999999999999999999",
                "--steps=99999999999999999999: expected an integer"},
        Refusal{"--seed=None", "--seed=None: expected an integer"},
        Refusal{"--resume=2", "--resume=2: expected true or false"},
        Refusal{"--resume='true'", "--resume='true': expected true or false"},
        Refusal{"--tolerance_s=small", "--tolerance_s=small: expected a number"},
        Refusal{"--job_name=[a]",
                "--job_name=[a]: expected text; quote it twice to mean it literally"},
        Refusal{"--dataset.episodes=1", "--dataset.episodes=1: expected a list of integers"},
        Refusal{"--dataset.episodes=[1, x]",
                "--dataset.episodes=[1, x]: expected an integer at dataset.episodes[1], found "
                "\"x\""},
        Refusal{"--dataset=5", "--dataset=5: expected an object"},
        Refusal{
            "--policy.normalization_mapping={STATE: bogus}",
            "--policy.normalization_mapping={STATE: bogus}: expected one of IDENTITY, MEAN_STD, "
            "MIN_MAX, QUANTILES, QUANTILE10 at policy.normalization_mapping['STATE'], found "
            "\"bogus\""},
        Refusal{"--policy.input_features=[]",
                "--policy.input_features=[]: expected an object such as {name: value}"},
        Refusal{"--dataset.image_transforms.tfs={hue: {wieght: 2}}",
                "--dataset.image_transforms.tfs={hue: {wieght: 2}}: unknown option "
                "dataset.image_transforms.tfs['hue'].wieght; did you mean weight?"},
        Refusal{"--optimizer.type=multi_adam",
                "--optimizer.type=multi_adam: expected one of adam, adamw, sgd (multi_adam is not "
                "supported yet)"},
        Refusal{"--scheduler.type=cosine",
                "--scheduler.type=cosine: expected one of constant_with_warmup, "
                "cosine_annealing_with_warmup, cosine_decay_with_warmup, diffuser, vqbet"},
        Refusal{"--scheduler.num_warmup_steps=5",
                "--scheduler: needs a type: one of constant_with_warmup, "
                "cosine_annealing_with_warmup, cosine_decay_with_warmup, diffuser, vqbet"}));

INSTANTIATE_TEST_SUITE_P(
    Ranges, OneWrongWord,
    ::testing::Values(
        Refusal{"--batch_size=0", "--batch_size=0: expected an integer at least 1"},
        Refusal{"--steps=-1", "--steps=-1: expected an integer at least 1"},
        Refusal{"--num_workers=-1", "--num_workers=-1: expected an integer at least 0"},
        Refusal{"--prefetch_factor=0", "--prefetch_factor=0: expected an integer at least 1"},
        Refusal{"--log_freq=-1", "--log_freq=-1: expected an integer at least 0"},
        Refusal{"--eval_steps=-1", "--eval_steps=-1: expected an integer at least 0"},
        Refusal{"--seed=-1", "--seed=-1: expected an integer at least 0 and at most 4294967295"},
        Refusal{"--tolerance_s=0", "--tolerance_s=0.0: expected a number above 0"},
        Refusal{"--tolerance_s=.inf", "--tolerance_s=Infinity: expected a finite number above 0"},
        Refusal{"--tolerance_s=nan", "--tolerance_s=NaN: expected a finite number above 0"},
        Refusal{"--dataset.eval_split=1",
                "--dataset.eval_split=1.0: expected a number at least 0 and below 1"},
        Refusal{"--policy.chunk_size=0",
                "--policy.chunk_size=0: expected an integer at least 1\n"
                "--policy.n_action_steps: at most policy.chunk_size (0) can be executed of one "
                "prediction, found 100"},
        Refusal{"--policy.dropout=1",
                "--policy.dropout=1.0: expected a number at least 0 and below 1"},
        Refusal{"--optimizer.lr=-1", "--optimizer.lr=-1.0: expected a number at least 0"},
        Refusal{"--optimizer.lr=nan", "--optimizer.lr=NaN: expected a finite number at least 0"},
        Refusal{"--optimizer.betas=[0.9, 1]",
                "--optimizer.betas[1]=1.0: expected a number at least 0 and below 1"},
        Refusal{"--optimizer.betas=[0.9]", "--optimizer.betas: expected two numbers, found 1"},
        Refusal{"--optimizer.eps=0", "--optimizer.eps=0.0: expected a number above 0"},
        Refusal{"--dataset.repo_type=model",
                "--dataset.repo_type=model: expected one of dataset, bucket"},
        Refusal{"--dataset.video_backend=vlc",
                "--dataset.video_backend=vlc: expected one of torchcodec, pyav, video_reader"},
        Refusal{"--dataset.depth_output_unit=cm",
                "--dataset.depth_output_unit=cm: expected one of mm, m"},
        Refusal{
            "--dataset.streaming_sampling_strategy=all",
            "--dataset.streaming_sampling_strategy=all: expected one of remaining, round_robin"},
        Refusal{"--dataloader_multiprocessing_context=thread",
                "--dataloader_multiprocessing_context=thread: expected one of spawn, fork, "
                "forkserver"},
        Refusal{"--accelerator.mixed_precision=fp8",
                "--accelerator.mixed_precision=fp8: expected one of no, fp16, bf16"},
        Refusal{"--accelerator.gradient_accumulation.steps=0",
                "--accelerator.gradient_accumulation.steps=0: expected an integer at least 1"},
        Refusal{"--checkpoint_format=pt",
                "--checkpoint_format=pt: expected one of safetensors, dcp, safetensors_dcp"},
        Refusal{"--ema.decay=2", "--ema.decay=2.0: expected a number at least 0 and at most 1"},
        Refusal{"--dataset.image_transforms.tfs={a: {type: Identity, kwargs: {x: [.nan]}}}",
                "--dataset.image_transforms.tfs['a'].kwargs['x']['0']=NaN: expected a finite "
                "number"},
        Refusal{"--policy.input_features={observation.state: {type: STATE, shape: [0]}}",
                "--policy.input_features['observation.state'].shape[0]=0: expected an integer at "
                "least 1"}));

INSTANTIATE_TEST_SUITE_P(
    Rules, OneWrongWord,
    ::testing::Values(
        Refusal{"--dataset.episodes=[]",
                "--dataset.episodes=[]: selects nothing; null selects every episode"},
        Refusal{"--dataset.episodes=[1, 2, 1, 2, 3]",
                "--dataset.episodes: episodes given more than once: 1, 2"},
        Refusal{"--dataset.episodes=[0, -2]",
                "--dataset.episodes: expected numbers of at least 0, found -2"},
        Refusal{"--dataset.exclude_episodes=[-1]",
                "--dataset.exclude_episodes: expected numbers of at least 0, found -1"},
        Refusal{"--eval_steps=5",
                "--eval_steps=5: needs --dataset.eval_split above 0, which holds out episodes"},
        Refusal{"--dataset.repo_id=someone\\data",
                "--dataset.repo_id=someone\\data: contains a back-slash; ids are OWNER/NAME"},
        Refusal{"--dataset.repo_id=some one/data",
                "--dataset.repo_id=some one/data: contains a blank; ids are OWNER/NAME"},
        Refusal{"--dataset.repo_id=../data",
                "--dataset.repo_id=../data: contains \"..\"; ids are OWNER/NAME"},
        Refusal{"--policy.repo_id=a\\b",
                "--policy.repo_id=a\\b: contains a back-slash; ids are OWNER/NAME"},
        Refusal{"--dataset.root=", "--dataset.root=: expected a folder or null"},
        Refusal{"--output_dir=", "--output_dir=: expected text or null"},
        Refusal{"--job_name=a/b",
                "--job_name=a/b: contains a slash; it becomes part of a folder's name"},
        Refusal{
            "--rename_map={a: b}",
            "--rename_map: needs a pretrained policy (--policy.path): a new one takes its names "
            "from the dataset"},
        Refusal{"--policy.n_action_steps=200",
                "--policy.n_action_steps: at most policy.chunk_size (100) can be executed of one "
                "prediction, found 200"},
        Refusal{"--policy.device=", "--policy.device=: expected cpu, cuda, cuda:N or null"},
        Refusal{"--policy.device=gpu", "--policy.device=gpu: expected cpu, cuda, cuda:N or null"},
        Refusal{"--policy.device=cuda:x",
                "--policy.device=cuda:x: expected cpu, cuda, cuda:N or null"},
        Refusal{"--use_policy_training_preset=false",
                "--optimizer.type is required with --use_policy_training_preset=false\n"
                "--scheduler.type is required with --use_policy_training_preset=false"},
        Refusal{"--optimizer={type: sgd, nesterov: true}",
                "--optimizer.nesterov=true: needs --optimizer.momentum above 0 and "
                "--optimizer.dampening=0"},
        Refusal{
            "--scheduler.type=cosine_decay_with_warmup",
            "--scheduler.num_warmup_steps is required by "
            "--scheduler.type=cosine_decay_with_warmup: steps of the linear rise\n"
            "--scheduler.num_decay_steps is required by "
            "--scheduler.type=cosine_decay_with_warmup: step at which decay_lr is reached\n"
            "--scheduler.peak_lr is required by --scheduler.type=cosine_decay_with_warmup: rate "
            "after the rise\n"
            "--scheduler.decay_lr is required by --scheduler.type=cosine_decay_with_warmup: "
            "rate at the end"},
        Refusal{"--scheduler.type=diffuser",
                "--scheduler.num_warmup_steps=null: cosine needs a number of steps"},
        Refusal{"--ema={min_decay: 0.9, max_decay: 0.5}",
                "--ema.min_decay=0.9: is above --ema.max_decay=0.5"},
        Refusal{"--eval.recording_repo_id=a/b",
                "--eval.recording_repo_id: needs --eval.recording=true"},
        Refusal{"--dataset.image_transforms={enable: true, tfs: {a: {weight: 0}}}",
                "--dataset.image_transforms.tfs: at least one weight must be above 0"},
        Refusal{"--parallelism.dp_shard=0",
                "--parallelism.dp_shard=0: expected -1 or an integer at least 1"},
        Refusal{"--checkpoint_format=dcp",
                "--checkpoint_format=dcp requires a sharded run (--parallelism.dp_shard != 1); "
                "checkpoints of runs that are not sharded are always safetensors"},
        Refusal{"--accelerator.fsdp.min_num_params=0",
                "--accelerator.fsdp.min_num_params=0: expected an integer at least 1"},
        Refusal{"--resume=true",
                "--resume=true: needs --config_path=OUTPUT_DIR/checkpoints/last"}));

INSTANTIATE_TEST_SUITE_P(
    Capabilities, OneWrongWord,
    ::testing::Values(
        Refusal{"--policy.push_to_hub=true",
                "--policy.push_to_hub=true: needs --policy.repo_id=OWNER/NAME, the repository to "
                "publish to"},
        Refusal{"--save_checkpoint_to_hub=true",
                "--save_checkpoint_to_hub=true: needs --policy.repo_id=OWNER/NAME, the repository "
                "to publish to"},
        Refusal{"--policy.repo_id=a/b/c",
                "--policy.repo_id=a/b/c: is no name of a repository; expected OWNER/NAME"},
        Refusal{"--policy.use_peft=true",
                "--policy.use_peft=true: needs --policy.path=ADAPTER, the folder or repository of "
                "the adapter; --peft.* puts a new one on the policy of --policy.path"},
        Refusal{"--trackio.space_id=me/space",
                "--trackio.space_id=me/space is not supported: runs are tracked on this machine; "
                "leave it out, and bring the project to a Space with trackio's own `trackio sync "
                "--project PROJECT --space-id OWNER/NAME`"},
        Refusal{"--tracker.type=trackio",
                "--tracker.type=trackio is not supported: pass --trackio.enable=true, and "
                "--trackio.project and --trackio.name (there tracker.run_id)"},
        Refusal{"--tracker={type: trackio}",
                "--tracker={type: trackio} is not supported: pass --trackio.enable=true, and "
                "--trackio.project and --trackio.name (there tracker.run_id)"},
        Refusal{"--trackio.project=Größe",
                "--trackio.project=Größe: names of projects are ASCII letters, digits, '-' and "
                "'_'"},
        Refusal{"--trackio.project=registry-a",
                "--trackio.project=registry-a: names that begin with registry- are trackio's own"},
        Refusal{"--trackio.project=my._configs",
                "--trackio.project=my._configs: names that end with _configs are trackio's own"},
        Refusal{"--trackio.name=caf\xe9", "--trackio.name=caf\xef\xbf\xbd: is not UTF-8"},
        Refusal{"--trackio.name=' '",
                "--trackio.name= : expected a name, or null for the output folder's"},
        Refusal{"--wandb.enable=true",
                "--wandb.enable=true is not supported: pass --trackio.enable=true, which keeps the "
                "run on this machine"},
        Refusal{"--env.type=pusht",
                "--env.type=pusht is not supported: simulators are not run here; evaluate the "
                "checkpoint with lerobot-eval"},
        Refusal{"--reward_model.type=x",
                "--reward_model.type=x is not supported: only policies are trained here; train "
                "reward models with LeRobot"},
        Refusal{
            "--sample_weighting.type=rabc",
            "--sample_weighting.type=rabc is not supported: every frame counts the same; choose "
            "episodes with --dataset.episodes"},
        Refusal{"--job.target=a10g",
                "--job.target=a10g is not supported: log in to that machine and run lerobot-train "
                "there"},
        Refusal{"--policy.discover_packages_path=mine",
                "--policy.discover_packages_path=mine is not supported: plug-ins written in Python "
                "can't be loaded"},
        Refusal{"--policy.use_amp=true",
                "--policy.use_amp=true is not supported: pass --accelerator.mixed_precision=bf16 "
                "instead"},
        Refusal{"--max_num_shards=2", "--max_num_shards=2 is not supported yet"},
        Refusal{"--parallelism.context_parallel.ring_degree=2",
                "--parallelism.context_parallel.ring_degree=2 is not supported yet"},
        Refusal{"--parallelism.context_parallel.ulysses_degree=2",
                "--parallelism.context_parallel.ulysses_degree=2 is not supported yet"},
        Refusal{"--parallelism.cfg_parallel=2",
                "--parallelism.cfg_parallel=2 is not supported yet"},
        Refusal{"--accelerator.compile.enabled=true",
                "--accelerator.compile.enabled=true is not supported yet"},
        Refusal{"--accelerator.activation_checkpointing.mode=full",
                "--accelerator.activation_checkpointing.mode=full is not supported yet"},
        Refusal{"--dataset.root=hf://buckets/a/b",
                "--dataset.root=hf://buckets/a/b does not match "
                "--dataset.repo_id=someone/data; leave one of them out"},
        Refusal{"--dataset.root=s3://somewhere/data",
                "--dataset.root=s3://somewhere/data: expected a folder, http(s)://HOST/PATH, "
                "hf://datasets/OWNER/NAME[@REVISION] or hf://buckets/OWNER/NAME"},
        Refusal{"--dataset.root=http://host/dataset",
                "--dataset.root=http://host/dataset can only be streamed: add "
                "--dataset.streaming=true"},
        Refusal{"--dataset.image_transforms={enable: true, tfs: {a: {type: GaussianBlur}}}",
                "--dataset.image_transforms.tfs['a'].type=GaussianBlur is not supported yet; there "
                "are ColorJitter, SharpnessJitter, RandomAffine and Identity"}));

TEST(Refusals, BucketsCanOnlyBeStreamed) {
  EXPECT_EQ(problems(plain({"--dataset.repo_type=bucket", "--dataset.streaming=true"})), "");
  EXPECT_EQ(problems(plain({"--dataset.repo_type=bucket"})),
            "--dataset.repo_type=bucket: Buckets can only be streamed; add "
            "--dataset.streaming=true");
  EXPECT_EQ(problems({"--dataset.root=hf://buckets/a/b/sub", "--dataset.streaming=true",
                      "--policy.type=act"}),
            "--dataset.root=hf://buckets/a/b/sub: a sub-directory of a bucket (sub) is not "
            "supported; expected the bucket itself, hf://buckets/a/b\n"
            "--dataset.repo_id is required: the name of the dataset, OWNER/NAME");
}

TEST(Refusals, AStreamHasNoHeldOutEpisodes) {
  EXPECT_EQ(problems(plain({"--dataset.streaming=true", "--dataset.root=https://host/dataset"})),
            "");
  EXPECT_EQ(problems(plain({"--dataset.streaming=true", "--dataset.eval_split=0.1"})),
            "--dataset.eval_split=0.1: needs a dataset that is not streamed; pass "
            "--dataset.eval_split=0 or --dataset.streaming=false");
}

TEST(Refusals, WhatLeRobotAcceptsWithoutEffectIsAcceptedToo) {
  EXPECT_EQ(
      problems(plain({"--job.target=local", "--parallelism.dp_shard=-1", "--wandb.project=mine",
                      "--accelerator.ddp.static_graph=true", "--dataset.streaming_byte_budget_gb=4",
                      "--policy.repo_id=a/b", "--dataset.root=/data", "--dataset.revision=v1.0",
                      "--eval.n_episodes=3", "--env_eval_freq=0",
                      "--dataset.image_transforms.tfs={a: {type: GaussianBlur}}"})),
      "");
}

TEST(Refusals, AShardedRunHasNoAverageOfWeights) {
  EXPECT_EQ(problems(plain({"--parallelism.dp_shard=2", "--ema.enable=true"})),
            "--ema.enable=true: no process of a sharded run has the whole model to average "
            "(--parallelism.dp_shard=2); pass --ema.enable=false or --parallelism.dp_shard=1");
}

TEST(Refusals, HalfPrecisionNeedsAnAccelerator) {
  EXPECT_EQ(problems(plain({"--accelerator.mixed_precision=fp16", "--policy.device=cpu"})),
            "--accelerator.mixed_precision=fp16: needs an accelerator; with --policy.device=cpu "
            "use bf16 or no");
}

TEST(Refusals, TheOptionsOfShardedRunsAreAccepted) {
  EXPECT_EQ(
      problems(plain({"--parallelism.dp_replicate=2", "--parallelism.dp_shard=2",
                      "--checkpoint_format=safetensors_dcp", "--accelerator.mixed_precision=bf16",
                      "--accelerator.fsdp.wrap_modules=[ACTEncoderLayer]",
                      "--accelerator.fsdp.reshard_after_forward=false",
                      "--accelerator.fsdp.cpu_offload=true",
                      "--accelerator.fsdp.ignored_modules=.*backbone",
                      "--accelerator.fsdp.mixed_precision_policy.param_dtype=bfloat16"})),
      "");
}

TEST(Refusals, AnAdapterNeedsAPolicyTargetsAndAMethodThatIsThere) {
  EXPECT_EQ(problems(plain({"--peft.method_type=IA3", "--peft.init_type=eva"})),
            "--peft.init_type=eva: expected one of gaussian, orthogonal, olora, pissa\n"
            "--peft.method_type=IA3: is not supported; there is LORA\n"
            "--policy.path is required with --peft.*: adapters fine-tune a policy; training from "
            "scratch with them is unlikely to give good results\n"
            "--peft.target_modules: Policy 'act' does not define default target_modules. "
            "Please pass --peft.target_modules explicitly, such as '[\"linear1\",\"linear2\"]' or "
            "all-linear");
  EXPECT_THAT(problems(plain({"--peft.target_modules=[linear1, 2]"})),
              HasSubstr("--peft.target_modules=[\"linear1\", 2]: expected a list of endings"));
  EXPECT_THAT(problems(plain({"--peft.target_modules=[linear1]", "--ema.enable=true"})),
              HasSubstr("--ema.enable=true: is not supported with adapters"));
}

TEST(Refusals, EverythingWrongIsReportedAtOnce) {
  EXPECT_EQ(problems({"--batch_sze=8", "--steps=many", "--seed=-1", "--save_checkpoint_to_hub=true",
                      "extra", "--resume"}),
            "extra: unexpected; options are --name=value\n"
            "--resume: needs a value: --resume=VALUE\n"
            "--batch_sze=8: unknown option; did you mean --batch_size?\n"
            "--steps=many: expected an integer\n"
            "--seed=-1: expected an integer at least 0 and at most 4294967295\n"
            "--dataset.repo_id is required: the name of the dataset, OWNER/NAME\n"
            "--policy.type or --policy.path is required");
}

TEST(Refusals, WhatIsMissingIsNamed) {
  EXPECT_EQ(problems({}),
            "--dataset.repo_id is required: the name of the dataset, OWNER/NAME\n"
            "--policy.type or --policy.path is required");
  EXPECT_EQ(problems({"--dataset.repo_id=a/b", "--policy.chunk_size=5"}),
            "--policy.type or --policy.path is required");
  EXPECT_EQ(problems({"--dataset.repo_id=a/b", "--policy.chunk_sise=5"}),
            "--policy.chunk_sise=5: unknown option; did you mean --policy.chunk_size?\n"
            "--policy.type or --policy.path is required");
  EXPECT_EQ(problems({"--dataset.repo_id=a/b", "--policy.type=actt"}),
            "--policy.type=actt: expected one of act, diffusion");
  EXPECT_EQ(problems({"--dataset.repo_id=a/b", "--policy.type=pi0", "--policy.chunk_size=5"}),
            "--policy.type=pi0: expected one of act, diffusion (pi0 is not supported yet)");
}

TEST(Refusals, WhatAnUnreadFileMayHoldIsNotReportedAsMissing) {
  for (const char* word : {"--config_path=nowhere.json", "--config_path=nowhere"})
    EXPECT_THAT(problems({word, "--resume=true"}),
                AllOf(StartsWith(word), HasSubstr("no such file"), Not(HasSubstr("required"))));
  EXPECT_EQ(problems({"--resume=true"}),
            "--resume=true: needs --config_path=OUTPUT_DIR/checkpoints/last");
  EXPECT_THAT(problems({"--policy.path=nowhere", "--dataset.repo_id=a/b"}),
              AllOf(HasSubstr("no such folder"), Not(HasSubstr("required"))));
  EXPECT_THAT(problems({"--policy.path=nowhere"}), HasSubstr("--dataset.repo_id is required"));
}

TEST(Refusals, DamagedWordsAreRefusedAndNothingElseHappens) {
  const Words intact = plain({"--dataset.episodes=[0, 2]", "--optimizer={type: sgd, lr: 0.1}",
                              "--scheduler.type=constant_with_warmup",
                              R"(--policy.input_features={"observation.state": {"type": "STATE"}})",
                              "--dataset.image_transforms.tfs={hue: {weight: 0.5}}",
                              "--tolerance_s=1e-4", "--peft.r=4", "--rename_map={a: b}"});
  std::uint32_t state = 1;
  const auto random = [&](std::size_t below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::size_t>(state >> 8) % below;
  };
  for (int round = 0; round < 500; ++round) {
    Words words = intact;
    std::string& word = words[random(words.size())];
    for (std::size_t edit = 0; edit <= random(3); ++edit) {
      const std::size_t at = 2 + random(word.size() - 1);
      constexpr std::string_view kBytes =
          "{}[]:,=.-\"'\\ \t\n#&*!|>%@\x80\xff"
          "0aN_";
      const char byte = kBytes[random(kBytes.size())];
      if (at >= word.size() || random(2) == 0)
        word.insert(std::min(at, word.size()), 1, byte);
      else
        word[at] = byte;
    }
    try {
      parse(words);
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  }
}

// --- Files
// ----------------------------------------------------------------------------------------

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("lerobot config " + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path file = folder_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file.string();
  }

  fs::path folder_;
};

TEST_F(Files, UnknownDuplicatedAndWrongFieldsAreNamedWithTheFile) {
  const std::string file = write("train.json", R"({
    "dataset": {"repo_id": "a/b", "rot": "/x"},
    "policy": {"type": "act", "chunk_sise": 5, "dim_model": "wide"},
    "steps": "10", "steps": 0, "batch_size": 4.5, "learning_rate": 1
  })");
  EXPECT_EQ(problems({"--config_path=" + file}),
            file + ": steps: is given twice\n" +  //
                file +
                ": policy.chunk_sise: unknown option; did you mean policy.chunk_size?\n" +  //
                file + ": policy.dim_model: expected an integer, found \"wide\"\n" +        //
                file + ": dataset.rot: unknown option; did you mean dataset.root?\n" +      //
                file + ": batch_size: expected an integer, found 4.5\n" +                   //
                file + ": learning_rate: unknown option");
}

TEST_F(Files, AValueOutOfRangeIsNamedWithTheFileThatGaveIt) {
  const std::string file = write("train.yaml",
                                 "dataset: {repo_id: a/b}\nwandb: {enable: true}\nbatch_size: "
                                 "0\npolicy: {type: act}\n");
  EXPECT_EQ(problems({"--config_path=" + file}),
            file + ": batch_size=0: expected an integer at least 1\n" +  //
                file +
                ": wandb.enable=true is not supported: pass --trackio.enable=true, which keeps "
                "the run on this machine");
  EXPECT_EQ(problems({"--config_path=" + file, "--batch_size=-1", "--wandb.enable=false"}),
            "--batch_size=-1: expected an integer at least 1");
}

TEST_F(Files, YamlIsReadLikeTheCommandLine) {
  const std::string file = write("train.yml",
                                 "dataset: {repo_id: a/b, episodes: [1, 2]}\n"
                                 "policy:\n  type: act\n  optimizer_lr: 1e-4\n"
                                 "job_name: 12\ntolerance_s: 1e-3\nseed: null\n");
  const TrainConfig config = parse({"--config_path=" + file}).config;
  EXPECT_EQ(config.job_name, "12");
  EXPECT_EQ(config.tolerance_s, 1e-3);
  EXPECT_EQ(config.seed, std::nullopt);
  EXPECT_EQ(config.dataset.episodes, (std::vector<std::int64_t>{1, 2}));
}

TEST_F(Files, BrokenFilesAreRefusedByName) {
  for (const auto& [name, text, message] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"a.json", "{", "is not valid JSON"},
           {"b.json", "[]", "expected an object with options, found array"},
           {"c.yaml", "a: [1", "is not valid YAML"},
           {"d.yaml", "just text", "expected an object with options, found string"},
           {"e.toml", "a = 1", "TOML is not supported; write JSON or YAML"},
           {"f.json", std::string(100, '['), "nested deeper than 64 levels"},
           {"g.yaml", "x: " + std::string(100, '['), "is not valid YAML"},
           {"h.json", "", "is not valid JSON"}}) {
    const std::string file = write(name, text);
    EXPECT_THAT(problems(plain({"--config_path=" + file})),
                HasSubstr("--config_path=" + file + ": " + file + ": " + message));
  }
}

TEST_F(Files, DuplicatedKeysOfYamlAreNamed) {
  const std::string file =
      write("t.yaml", "policy: {type: act}\ndataset: {repo_id: a, repo_id: b}\n");
  EXPECT_EQ(problems({"--config_path=" + file}), file + ": dataset.repo_id: is given twice");
}

TEST_F(Files, AnotherPolicyThanTheFilesIsRefused) {
  const std::string file = write("t.yaml", "policy: {type: act}\ndataset: {repo_id: a}\n");
  EXPECT_EQ(problems({"--config_path=" + file, "--policy.type=diffusion"}),
            "--policy.type: can't turn a act policy into diffusion");
  EXPECT_EQ(problems({"--config_path=" + file, "--policy.type=act"}), "");
}

TEST_F(Files, OptionsOfAnotherTypeAreUnknown) {
  const std::string file = write("t.yaml",
                                 "policy: {type: act, horizon: 8}\ndataset: {repo_id: a}\n"
                                 "optimizer: {type: adamw, momentum: 0.9}\n");
  EXPECT_EQ(problems({"--config_path=" + file}),
            file + ": policy.horizon: unknown option\n" + file +
                ": optimizer.momentum: unknown option of this type");
}

TEST_F(Files, AFilesSchedulerIsComplete) {
  const std::string file = write("t.yaml",
                                 "policy: {type: act}\ndataset: {repo_id: a}\n"
                                 "scheduler: {type: cosine_annealing_with_warmup}\n");
  EXPECT_EQ(problems({"--config_path=" + file}),
            "--scheduler.num_warmup_steps is required by "
            "--scheduler.type=cosine_annealing_with_warmup: steps of the linear rise");
}

TEST_F(Files, AFilesPolicyPathIsReadWithItsOverrides) {
  const std::string pretrained = kCheckpoints + "/state_single/000040/pretrained_model";
  const std::string file =
      write("t.yaml", "policy: {path: " + pretrained + ", dropout: 0.5}\ndataset: {repo_id: a}\n");
  const TrainCommandLine line = parse({"--config_path=" + file});
  EXPECT_EQ(act(line).chunk_size, 5);
  EXPECT_EQ(act(line).dropout, 0.5);
  EXPECT_EQ(line.config.policy->pretrained_path, pretrained);
}

TEST_F(Files, PolicyPathSaysWhatIsWrong) {
  const Words words{"--dataset.repo_id=a/b"};
  const auto with = [&](const std::string& path) {
    Words all = words;
    all.push_back("--policy.path=" + path);
    return problems(all);
  };
  EXPECT_THAT(with("someone/act_policy"),
              HasSubstr("--policy.path=someone/act_policy: someone/act_policy: no such folder"));
  EXPECT_THAT(with((folder_ / "none").string()), HasSubstr("none: no such folder"));
  EXPECT_THAT(with(folder_.string()), HasSubstr("no config.json in this folder"));
  const std::string file =
      write("config.json", R"({"type": "act", "chunk_sise": 5, "push_to_hub": true})");
  EXPECT_THAT(with(file), HasSubstr("is a file; pass the folder that holds config.json"));
  EXPECT_THAT(with(folder_.string()),
              HasSubstr(file + ": chunk_sise: unknown option; did you mean chunk_size?"));
  EXPECT_THAT(with(folder_.string()),
              HasSubstr(file + ": policy.push_to_hub=true: needs --policy.repo_id=OWNER/NAME"));
  EXPECT_THAT(problems(plain({"--policy.path=" + kCheckpoints + "/state_single/000040"})),
              HasSubstr("--policy.path and --policy.type exclude each other"));
}

TEST_F(Files, OldFieldsOfLeRobotAreDroppedUnlessTheyMeanSomething) {
  const std::string plain_file =
      write("a.json", R"({"dataset": {"repo_id": "a"}, "policy": {"type": "act"}, "use_rabc": false,
                    "rabc_kappa": 0.1})");
  EXPECT_EQ(problems({"--config_path=" + plain_file}), "");
  const std::string used = write(
      "b.json", R"({"dataset": {"repo_id": "a"}, "policy": {"type": "act"}, "use_rabc": true})");
  EXPECT_THAT(problems({"--config_path=" + used}),
              HasSubstr("sample_weighting.* is not supported: every frame counts the same"));
}

TEST_F(Files, ResumeNeedsACheckpoint) {
  const std::string file =
      write("train_config.json", R"({"dataset": {"repo_id": "a"}, "policy": {"type": "act"}})");
  EXPECT_THAT(problems({"--resume=true", "--config_path=" + file}),
              HasSubstr(file + " is not in a checkpoint: there is no"));
  EXPECT_THAT(problems({"--resume=true", "--config_path=" + kCheckpoints + "/state_single/last",
                        "--policy.path=" + kCheckpoints + "/state_single/last"}),
              HasSubstr("--policy.path and --resume=true exclude each other"));
}

TEST_F(Files, ReadPolicyConfigNamesUnknownFields) {
  const std::string file =
      write("config.json", R"({"type": "act", "chunk_sise": 5, "dropout": "x", "dropout": 0.1})");
  try {
    read_policy_config(file, policies());
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(), file + ": dropout: is given twice\n" + file +
                                ": chunk_sise: unknown option; did you mean chunk_size?");
  }
  const std::string typeless = write("typeless.json", R"({"chunk_size": 5})");
  EXPECT_THROW(read_policy_config(typeless, policies()), UsageError);
}

}  // namespace
}  // namespace lerobot::config::test
