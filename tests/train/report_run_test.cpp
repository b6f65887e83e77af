// What runs leave behind for who watches them: run.json, report.html, the numbers of metrics.jsonl.
#include <csignal>
#include <numeric>

#include <gmock/gmock.h>

#include "tests/train/several_processes.h"

namespace lerobot::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Watching : public SeveralProcesses {
 protected:
  Json state(const std::string& run) const { return read_json_file(output(run) / "run.json"); }
  std::string report(const std::string& run) const {
    return read_text_file(output(run) / "report.html");
  }
  Outcome rebuild(const std::string& run) const {
    return run_program({"--report", output(run).string()});
  }
};

TEST_F(Watching, LeavesAReportOfAFinishedRun) {
  ASSERT_EQ(train_program(with(small_act("run", "toy_state"),
                               {"--steps=4", "--dataset.eval_split=0.3", "--eval_steps=2"})),
            0);
  EXPECT_EQ(state("run")["status"], "finished");
  const std::string html = report("run");
  EXPECT_THAT(html, HasSubstr(">finished</span>"));
  EXPECT_THAT(html, HasSubstr("step 4 of 4"));
  EXPECT_THAT(html, HasSubstr(R"("name":"training")"));
  EXPECT_THAT(html, HasSubstr(R"("name":"held out")"));
  EXPECT_THAT(html, HasSubstr((checkpoint("run", "000004") / "pretrained_model").string()));
  EXPECT_THAT(html, HasSubstr("dataset.num_frames="));
}

TEST_F(Watching, SaysWhereTheTimeOfAStepGoes) {
  ASSERT_EQ(train_program(with(small_act("run", "toy_state"), {"--steps=3"})), 0);
  for (const Json& line : lines(output("run") / "metrics.jsonl")) {
    EXPECT_TRUE(line.contains("unix_time"));
    if (!line.contains("loss")) continue;
    double sum = 0;
    for (const char* part : {"data", "preprocessing", "forward", "backward", "communication",
                             "optimizer", "checkpoint", "evaluation", "other"})
      sum += line.at(fmt::format("time_{}_s", part)).get<double>();
    // The parts are all of the time, and the step is most of it.
    EXPECT_GE(sum, line["step_s"].get<double>());
    EXPECT_GT(line["time_backward_s"].get<double>(), 0);
    EXPECT_EQ(line["time_communication_s"], 0.0);
    EXPECT_GE(line["process_memory_peak_bytes"].get<std::int64_t>(),
              line["process_memory_bytes"].get<std::int64_t>());
    EXPECT_GT(line["process_memory_bytes"].get<std::int64_t>(), 10 << 20);
  }
}

TEST_F(Watching, TellsAStoppedRunAndGoesOnWithItsCurves) {
  const auto flags = with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=0"});
  ASSERT_EQ(run_program(flags, "step:3 ", SIGINT).code, 130);
  EXPECT_EQ(state("run")["status"], "stopped");
  EXPECT_THAT(report("run"), HasSubstr("stopped by SIGINT after step"));
  const auto done = static_cast<std::int64_t>(samples("run").size());
  ASSERT_EQ(train_program(std::vector<std::string>{"--resume=true",
                                                   "--config_path=" + output("run").string(),
                                                   fmt::format("--steps={}", done + 2)}),
            0);
  const Json resumed = state("run");
  EXPECT_EQ(resumed["status"], "finished");
  ASSERT_EQ(resumed["before"].size(), 1U);
  EXPECT_EQ(resumed["before"][0]["status"], "stopped");
  EXPECT_EQ(resumed["start_step"], done);
  EXPECT_THAT(report("run"), HasSubstr("Runs in this folder"));
  EXPECT_THAT(report("run"), HasSubstr(fmt::format("{},{}],\"y\"", done + 1, done + 2)));
}

TEST_F(Watching, TellsAKilledRunWhenItIsAskedFor) {
  const auto flags = with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=2"});
  ASSERT_EQ(run_program(flags, "after step 6\n", SIGKILL).code, -SIGKILL);
  EXPECT_EQ(state("run")["status"], "running");
  const auto outcome = rebuild("run");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr((output("run") / "report.html").string()));
  EXPECT_THAT(report("run"), HasSubstr(">died</span>"));
}

TEST_F(Watching, TellsARunThatFailed) {
  const auto flags = with(small_act("run", "toy_state"), {"--steps=100000", "--save_freq=0"});
  const auto outcome = launch(2, flags, "", "step:3 ", [&] { signal_rank(1, SIGKILL); });
  EXPECT_NE(outcome.code, 0);
  // Rank 0 hears of it by itself, unless the launcher is faster.
  rebuild("run");
  EXPECT_THAT(report("run"), Not(HasSubstr(">running</span>")));
  if (state("run")["status"] == "failed") {
    EXPECT_THAT(report("run"), HasSubstr("rank 1"));
  }
}

TEST_F(Watching, CountsWhatRanksWaitForOneAnother) {
  for (const char* degrees : {"--parallelism.dp_replicate=2", "--parallelism.dp_shard=2"}) {
    const std::string run = degrees;
    ASSERT_EQ(launch(2, with(small_act(run, "toy_state"), {"--steps=2", degrees})).code, 0);
    for (const Json& line : lines(output(run) / "metrics.jsonl")) {
      if (!line.contains("loss")) continue;
      EXPECT_GT(line["time_communication_s"].get<double>(), 0) << run;
    }
  }
}

TEST_F(Watching, SaysHowAReportIsAskedFor) {
  for (const auto& wrong : std::vector<std::vector<std::string>>{{"--report"},
                                                                 {"--report="},
                                                                 {"--report", "a", "b"},
                                                                 {"--report", "--steps=3"},
                                                                 {"--steps=3", "--report=a"}}) {
    const auto outcome = run_program(wrong);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.text, HasSubstr("expected `lerobot-train --report RUN`"));
  }
  const auto outcome = run_program({"--report=" + output("none").string()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("is no folder"));
}

}  // namespace
}  // namespace lerobot::train
