// Runs on a streamed dataset: local and behind HTTP, stopped, resumed, and in trouble.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <sys/file.h>

#include <gmock/gmock.h>

#include "tests/support/range_server.h"
#include "tests/train/run_fixture.h"

namespace lerobot::train {
namespace {

using test_server::Behaviour;
using test_server::RangeServer;
using test_server::Request;
using testing::HasSubstr;

class Streaming : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    ::setenv("HF_LEROBOT_HOME", (folder_ / "lerobot home").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("HF_LEROBOT_HOME");
    RunTest::TearDown();
  }

  std::vector<std::string> streamed(const std::string& run, const std::string& dataset,
                                    const std::vector<std::string>& more = {}) const {
    return with(with(small_act(run, dataset), {"--dataset.streaming=true"}), more);
  }

  /// samples.rank0.jsonl without what a different place of the data may change: nothing.
  void expect_equal_samples(const std::string& a, const std::string& b) const {
    const auto left = samples(a), right = samples(b);
    ASSERT_EQ(left.size(), right.size());
    for (std::size_t i = 0; i < left.size(); ++i) EXPECT_EQ(left[i], right[i]) << "step " << i + 1;
  }

  /// The lock that processes which build the same sidecar take.
  fs::path sidecar_lock() const {
    for (const auto& entry :
         fs::recursive_directory_iterator(folder_ / "lerobot home" / "streaming-sidecars"))
      if (entry.path().extension() == ".npz") return entry.path().string() + ".lock";
    ADD_FAILURE() << "there is no sidecar";
    return {};
  }
};

TEST_F(Streaming, AResumedRunIsTheUninterruptedRun) {
  for (const char* workers : {"0", "3"}) {
    const std::string whole = std::string("whole") + workers,
                      parts = std::string("parts") + workers;
    const std::vector<std::string> options = {std::string("--num_workers=") + workers,
                                              "--dataset.streaming_episode_pool_size=2"};
    ASSERT_EQ(train_program(with(streamed(whole, "toy_state", options), {"--steps=40"})), 0);
    ASSERT_EQ(train_program(with(streamed(parts, "toy_state", options), {"--steps=13"})), 0);
    for (const char* until : {"--steps=29", "--steps=40"})
      ASSERT_EQ(train_program(std::vector<std::string>{
                    "--resume=true", "--config_path=" + output(parts).string(), until}),
                0);
    expect_equal_samples(whole, parts);
    for (const char* file :
         {"pretrained_model/model.safetensors", "training_state/optimizer_state.safetensors",
          "training_state/rng_state.safetensors", "training_state/streaming_state.json"})
      EXPECT_EQ(read_text_file(checkpoint(whole, "000040") / file),
                read_text_file(checkpoint(parts, "000040") / file))
          << file;
  }
}

TEST_F(Streaming, AnotherNumberOfWorkersKeepsTheRecordedOrder) {
  ASSERT_EQ(
      train_program(with(streamed("whole", "toy_state", {"--num_workers=2"}), {"--steps=20"})), 0);
  ASSERT_EQ(train_program(with(streamed("parts", "toy_state", {"--num_workers=2"}), {"--steps=9"})),
            0);
  ASSERT_EQ(train_program(std::vector<std::string>{"--resume=true",
                                                   "--config_path=" + output("parts").string(),
                                                   "--num_workers=4", "--steps=20"}),
            0);
  expect_equal_samples("whole", "parts");
}

TEST_F(Streaming, ARunThatGoesOnWithoutStreamingIsTold) {
  ASSERT_EQ(train_program(streamed("run", "toy_state", {"--steps=3"})), 0);
  const auto outcome = run_program({"--resume=true", "--config_path=" + output("run").string(),
                                    "--dataset.streaming=false", "--steps=5"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("The checkpoint's run was streamed, this one is not"));
}

TEST_F(Streaming, CamerasBehindAnHttpServerAreThoseOfTheFolder) {
  RangeServer server(data() / "datasets" / "toy_h264");
  const std::vector<std::string> options = {"--num_workers=2", "--steps=5",
                                            "--policy.vision_backbone=resnet18"};
  ASSERT_EQ(train_program(streamed("local", "toy_h264", options)), 0);
  ASSERT_EQ(train_program(with(streamed("remote", "toy_h264", options),
                               {"--dataset.root=" + server.url("/")})),
            0);
  expect_equal_samples("local", "remote");
  EXPECT_GT(server.body_bytes("/videos/observation.images.front/chunk-000/file-000.mp4"), 0u);
  // Resumed, it finds the server again in its configuration.
  ASSERT_EQ(train_program(std::vector<std::string>{
                "--resume=true", "--config_path=" + output("remote").string(), "--steps=7"}),
            0);
  EXPECT_EQ(samples("remote").size(), 7u);
}

TEST_F(Streaming, AServerThatAnswersOtherwiseThanAskedIsNamed) {
  RangeServer server(data() / "datasets" / "toy_h264", [](const Request& request) {
    Behaviour behaviour;
    behaviour.ignore_range =
        request.path.ends_with(".parquet") && request.path.starts_with("/data/");
    return behaviour;
  });
  const auto outcome = run_program(
      with(streamed("run", "toy_h264", {"--steps=5"}), {"--dataset.root=" + server.url("/")}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("data/chunk-000/file-000.parquet"));
  EXPECT_THAT(outcome.text, HasSubstr("200"));
}

TEST_F(Streaming, CtrlCEndsAWaitForAServerThatSendsNothing) {
  RangeServer server(data() / "datasets" / "toy_h264", [](const Request& request) {
    Behaviour behaviour;
    behaviour.stall = request.path.starts_with("/data/") && request.method == "GET";
    if (behaviour.stall) behaviour.cut_after = 10;
    return behaviour;
  });
  const auto began = std::chrono::steady_clock::now();
  const auto outcome = run_program(
      with(streamed("run", "toy_h264", {"--steps=5"}), {"--dataset.root=" + server.url("/")}),
      "Start offline training", SIGINT);
  EXPECT_EQ(outcome.code, 130) << outcome.text;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(25));
}

TEST_F(Streaming, ALockThatIsNotHadInTimeSaysWhoHoldsItAndWhatToDo) {
  ASSERT_EQ(train_program(streamed("first", "toy_h264", {"--steps=1"})), 0);
  const fs::path lock = sidecar_lock();
  fs::path sidecar = lock;
  fs::remove(sidecar.replace_extension());
  const UniqueFd held(::open(lock.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  const auto outcome = run_program(streamed(
      "second", "toy_h264", {"--steps=1", "--dataset.streaming_sidecar_lock_timeout_s=0.3"}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("0.3 s"));
  EXPECT_THAT(outcome.text, HasSubstr(lock.string()));
  EXPECT_THAT(outcome.text, HasSubstr("streaming_sidecar_lock_timeout_s"));
}

TEST_F(Streaming, TheLogSaysWhatEveryOptionMeansAndHowLongDataWasWaitedFor) {
  const auto outcome = run_program(streamed(
      "run", "toy_split",
      {"--steps=2", "--num_workers=4", "--dataset.streaming_byte_budget_gb=1", "--log_freq=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (const char* line :
       {"dataset.streaming_episode_pool_size=null -> 8 episodes a worker, 4 workers",
        "dataset.streaming_byte_budget_gb=1 -> 0.250 GiB a worker", "Indexed 5/5 MP4 files",
        "data: wait p50:", "p99:", "reserved_bytes:", "resident_bytes:"})
    EXPECT_THAT(outcome.text, HasSubstr(line));
  const Json last = lines(output("run") / "metrics.jsonl").front();
  for (const char* key : {"wait_p50_s", "wait_p95_s", "wait_p99_s", "bytes_read", "bytes_per_s",
                          "reserved_bytes", "resident_bytes"})
    EXPECT_TRUE(last.contains(key)) << key;
}

TEST_F(Streaming, ABudgetThatIsTooSmallNamesTheEpisodeAndWhatHelps) {
  const auto outcome = run_program(
      streamed("run", "toy_h264", {"--steps=2", "--dataset.streaming_byte_budget_gb=0.000004"}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("exceeding the byte budget"));
  EXPECT_THAT(outcome.text, HasSubstr("--dataset.streaming_byte_budget_gb"));
}

}  // namespace
}  // namespace lerobot::train
