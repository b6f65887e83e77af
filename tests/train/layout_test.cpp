#include "lerobot/train/layout.h"

#include <memory>

#include <gmock/gmock.h>

#include "lerobot/policy/act/act_config.h"
#include "tests/support/error_of.h"

namespace lerobot::train {
namespace {

using ::testing::HasSubstr;

using Degrees = std::pair<std::int64_t, std::int64_t>;

config::TrainConfig resumed(Degrees recorded, const std::string& format = "safetensors") {
  config::TrainConfig config;
  config.dataset.repo_id = "a/b";
  config.policy = std::make_shared<policy::ActConfig>();
  config.policy->push_to_hub = false;
  config.resume = true;
  config.checkpoint_format = format;
  config.parallelism.dp_replicate = recorded.first;
  config.parallelism.dp_shard = recorded.second;
  return config;
}

Degrees degrees_on(std::int64_t world_size, config::TrainConfig config,
                   const std::set<std::string>& given = {}) {
  const auto mesh = resolve_layout(config, given, 0, world_size);
  EXPECT_EQ(Degrees(config.parallelism.dp_replicate, config.parallelism.dp_shard),
            Degrees(mesh.dp_replicate, mesh.dp_shard));
  return {mesh.dp_replicate, mesh.dp_shard};
}

TEST(Layout, OfANewRunIsWhatTheOptionsSay) {
  config::TrainConfig config = resumed({1, -1});
  config.resume = false;
  EXPECT_EQ(degrees_on(4, config), Degrees(1, 4));
  config.parallelism = {};
  EXPECT_EQ(degrees_on(4, config), Degrees(4, 1));
  config.parallelism.dp_replicate = 2;
  EXPECT_THAT(error_of([&] { degrees_on(4, config); }), HasSubstr("!= WORLD_SIZE=4"));
}

TEST(Layout, OfAResumedRunFollowsTheProcessesThatAreThere) {
  EXPECT_EQ(degrees_on(2, resumed({2, 1})), Degrees(2, 1));
  EXPECT_EQ(degrees_on(3, resumed({2, 1})), Degrees(3, 1));
  EXPECT_EQ(degrees_on(1, resumed({2, 1})), Degrees(1, 1));
  EXPECT_EQ(degrees_on(4, resumed({1, 2})), Degrees(1, 4));
  EXPECT_EQ(degrees_on(1, resumed({1, 2})), Degrees(1, 1));
  EXPECT_EQ(degrees_on(8, resumed({2, 2})), Degrees(4, 2));
  EXPECT_EQ(degrees_on(3, resumed({2, 2})), Degrees(1, 3));
}

TEST(Layout, OfAResumedRunIsWhatTheCommandLineGives) {
  auto config = resumed({2, 1});
  config.parallelism.dp_shard = 2;
  EXPECT_EQ(degrees_on(2, config, {"parallelism.dp_shard"}), Degrees(1, 2));
  config = resumed({1, 2});
  config.parallelism.dp_replicate = 1;
  EXPECT_EQ(degrees_on(2, config, {"parallelism.dp_replicate"}), Degrees(2, 1));
  config.parallelism.dp_replicate = 4;
  EXPECT_THAT(error_of([&] { degrees_on(2, config, {"parallelism.dp_replicate"}); }),
              HasSubstr("dp_replicate=4 * dp_shard=1 * ring=1 * ulysses=1 = 4 != WORLD_SIZE=2"));
}

TEST(Layout, AShardedRunThatGoesOnUnshardedWritesWholeWeights) {
  auto config = resumed({1, 2}, "dcp");
  ::testing::internal::CaptureStderr();
  resolve_layout(config, {}, 0, 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("checkpoint_format=safetensors instead of dcp"));
  EXPECT_EQ(config.checkpoint_format, "safetensors");
  config = resumed({1, 2}, "dcp");
  EXPECT_THAT(error_of([&] { resolve_layout(config, {"checkpoint_format"}, 0, 1); }),
              HasSubstr("--checkpoint_format=dcp requires a sharded run"));
}

TEST(Layout, ShardingOverOneProcessIsNotSharded) {
  auto config = resumed({1, -1}, "dcp");
  config.resume = false;
  EXPECT_THAT(error_of([&] { resolve_layout(config, {}, 0, 1); }),
              HasSubstr("--checkpoint_format=dcp requires a sharded run"));
  config = resumed({1, -1});
  config.resume = false;
  config.ema.enable = true;
  EXPECT_EQ(degrees_on(1, config), Degrees(1, 1));
  EXPECT_THAT(error_of([&] { degrees_on(2, config); }), HasSubstr("--ema.enable=true"));
}

TEST(Layout, AnOptionThatChangesNothingIsSaid) {
  config::TrainConfig config = resumed({1, 1});
  config.resume = false;
  const auto words = [&](std::int64_t world_size, const std::set<std::string>& given) {
    ::testing::internal::CaptureStderr();
    degrees_on(world_size, config, given);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(words(2, {"accelerator.fsdp.cpu_offload"}),
              HasSubstr("--accelerator.fsdp.cpu_offload has no effect: the model is not sharded"));
  EXPECT_THAT(words(1, {"accelerator.ddp.static_graph"}), HasSubstr("there is one process"));
  EXPECT_THAT(words(2, {"accelerator.grad_scaler.init_scale"}),
              HasSubstr("--accelerator.mixed_precision=no scales no loss"));
  EXPECT_EQ(words(2, {"accelerator.ddp.static_graph"}), "");
  config.parallelism.dp_shard = -1;
  EXPECT_THAT(words(2, {"accelerator.ddp.static_graph"}), HasSubstr("the model is sharded"));
  EXPECT_EQ(words(2, {"accelerator.fsdp.cpu_offload"}), "");
}

}  // namespace
}  // namespace lerobot::train
