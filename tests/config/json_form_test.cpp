// Files of LeRobot, read and written again.
#include <unistd.h>

#include "lerobot/base/files.h"
#include "tests/config/command_lines.h"

namespace lerobot::config::test {
namespace {

/// What LeRobot 0.6.1 does not know of a file that 0.6.2-dev wrote, where it has the default
/// (TrainPipelineConfig.from_pretrained of 0.6.1 refuses exactly these fields).
Json without_newer_defaults(Json file) {
  file["dataset"].erase("exclude_episodes");
  for (const char* name : {"parallelism", "ema", "checkpoint_format"}) file.erase(name);
  if (file["accelerator"]["mixed_precision"] == "no" &&
      file["accelerator"]["gradient_accumulation"]["steps"] == 1)
    file.erase("accelerator");
  return file;
}

class LeRobotsFile : public ::testing::TestWithParam<const char*> {};

TEST_P(LeRobotsFile, TrainConfigIsWrittenByteForByte) {
  const std::string file = kCheckpoints + "/" + GetParam() + "/pretrained_model/train_config.json";
  const TrainCommandLine line = parse({"--config_path=" + file});
  EXPECT_EQ(to_python_json(to_json(line.config, policies()), 4),
            to_python_json(without_newer_defaults(read_json_file(file)), 4));
}

TEST_P(LeRobotsFile, PolicyConfigIsWrittenByteForByte) {
  const std::string file = kCheckpoints + "/" + GetParam() + "/pretrained_model/config.json";
  const auto config = read_policy_config(file, policies());
  EXPECT_EQ(to_python_json(to_json(*config, policies()), 4), read_text_file(file));
}

TEST_P(LeRobotsFile, OurTrainConfigReadsBackEqual) {
  const std::string file = kCheckpoints + "/" + GetParam() + "/pretrained_model/train_config.json";
  const TrainConfig config = parse({"--config_path=" + file}).config;
  const fs::path copy =
      fs::temp_directory_path() / fmt::format("lerobot_train_config_copy {}.json", ::getpid());
  write_file_atomic(copy, to_python_json(to_json(config, policies()), 4));
  const TrainConfig again = parse({"--config_path=" + copy.string()}).config;
  fs::remove(copy);
  EXPECT_EQ(to_json(again, policies()), to_json(config, policies()));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, LeRobotsFile,
                         ::testing::Values("state_single/000008", "state_single/000040",
                                           "state_accum/000008", "state_bf16/000004",
                                           "state_sched/000003", "state_sched/000006"));

TEST(JsonForm, NewerFieldsAreWrittenOnceTheyDiffer) {
  const Json plain_run = to_json(parse(plain({})).config, policies());
  for (const char* name : {"parallelism", "accelerator", "ema", "trackio", "checkpoint_format",
                           "max_num_shards", "log_samples", "data_only"})
    EXPECT_FALSE(plain_run.contains(name)) << name;
  EXPECT_FALSE(plain_run["dataset"].contains("exclude_episodes"));
  EXPECT_FALSE(plain_run["dataset"].contains("streaming_order"));

  const Json changed = to_json(
      parse(plain({"--accelerator.mixed_precision=bf16", "--ema.enable=true",
                   "--dataset.exclude_episodes=[1]", "--accelerator.grad_scaler.init_scale=2"}))
          .config,
      policies());
  EXPECT_EQ(changed["accelerator"]["mixed_precision"], "bf16");
  EXPECT_EQ(changed["accelerator"]["fsdp"],
            Json::parse(R"({"reshard_after_forward": true, "wrap_modules": null,
                            "min_num_params": null, "cpu_offload": false, "ignored_modules": null})"));
  EXPECT_EQ(changed["accelerator"]["grad_scaler"]["init_scale"], 2.0);
  EXPECT_EQ(changed["ema"]["enable"], true);
  EXPECT_EQ(changed["dataset"]["exclude_episodes"], Json::parse("[1]"));
}

TEST(JsonForm, HowARunIsWatchedIsNotRecorded) {
  const Json written =
      to_json(parse(plain({"--log_samples=true", "--data_only=true"})).config, policies());
  EXPECT_FALSE(written.contains("log_samples"));
  EXPECT_FALSE(written.contains("data_only"));
}

TEST(JsonForm, FieldsKeepLeRobotsOrder) {
  const Json written = to_json(
      parse(plain({"--scheduler={type: diffuser, num_warmup_steps: 5}", "--optimizer.type=sgd"}))
          .config,
      policies());
  EXPECT_EQ(to_python_json(written["scheduler"], -1),
            R"({"type": "diffuser", "num_warmup_steps": 5, "name": "cosine"})");
  EXPECT_EQ(to_python_json(written["optimizer"], -1),
            R"({"type": "sgd", "lr": 1e-05, "weight_decay": 0.0001, "grad_clip_norm": 10.0, )"
            R"("momentum": 0.0, "dampening": 0.0, "nesterov": false})");
}

TEST(JsonForm, DilationMayBeANumberAsLeRobotWritesItAfterALoad) {
  const auto dilation = [](const std::string& value) {
    const TrainCommandLine line = parse(
        plain({"--policy.vision_backbone=resnet50", "--policy.pretrained_backbone_weights=null",
               "--policy.replace_final_stride_with_dilation=" + value}));
    return act(line).replace_final_stride_with_dilation;
  };
  EXPECT_TRUE(dilation("1"));
  EXPECT_FALSE(dilation("0"));
}

}  // namespace
}  // namespace lerobot::config::test
