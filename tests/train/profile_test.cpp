// --profile.steps: traces as chrome://tracing and Perfetto read them.
#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <zlib.h>

#include <gmock/gmock.h>

#include "lerobot/train/profile/chrome_trace.h"
#include "tests/train/several_processes.h"

namespace lerobot::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::string unpacked(const fs::path& file) {
  const gzFile stream = ::gzopen(file.c_str(), "rb");
  EXPECT_NE(stream, nullptr) << file;
  if (stream == nullptr) return "";
  std::string text;
  std::vector<char> buffer(1 << 16);
  for (int n = 0; (n = ::gzread(stream, buffer.data(), 1 << 16)) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  ::gzclose(stream);
  return text;
}

struct Span {
  std::string name;
  double begin;
  double end;
};

/// A trace, checked against the rules of its format.
class Trace {
 public:
  explicit Trace(const fs::path& file) {
    const Json document = parse_json(unpacked(file), file.string());
    for (const Json& event : document.at("traceEvents")) add(event);
    for (auto& [thread, spans] : threads_) check_nesting(spans);
  }

  /// Of one process (rank 0 is 0, rank 1 is 100).
  std::vector<Span> spans(std::int64_t process, const std::string& name) const {
    std::vector<Span> found;
    for (const auto& [thread, spans] : threads_)
      if (thread.first == process)
        for (const Span& span : spans)
          if (span.name == name) found.push_back(span);
    std::ranges::sort(found, {}, &Span::begin);
    return found;
  }
  const std::map<std::int64_t, std::string>& processes() const { return processes_; }
  std::set<std::string> thread_names(std::int64_t process) const {
    std::set<std::string> names;
    for (const auto& [thread, name] : thread_names_)
      if (thread.first == process) names.insert(name);
    return names;
  }

 private:
  using Thread = std::pair<std::int64_t, std::int64_t>;

  void add(const Json& event) {
    const std::string phase = event.at("ph");
    const Thread thread{event.at("pid").get<std::int64_t>(), event.at("tid").get<std::int64_t>()};
    if (phase == "M") {
      if (event["name"] == "process_name") processes_[thread.first] = event["args"]["name"];
      if (event["name"] == "thread_name") thread_names_[thread] = event["args"]["name"];
      return;
    }
    const auto begin = event.at("ts").get<double>();
    EXPECT_GE(begin, 0);
    if (phase != "X") return;
    const auto duration = event.at("dur").get<double>();
    EXPECT_GE(duration, 0);
    threads_[thread].push_back({event.at("name"), begin, begin + duration});
  }

  /// Spans of one thread lie in one another or beside one another.
  static void check_nesting(std::vector<Span>& spans) {
    std::ranges::stable_sort(spans, [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    constexpr double kRounding = 0.01;
    std::vector<const Span*> open;
    for (const Span& span : spans) {
      while (!open.empty() && open.back()->end <= span.begin + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(span.end, open.back()->end + kRounding)
            << span.name << " goes beyond " << open.back()->name;
      }
      open.push_back(&span);
    }
  }

  std::map<Thread, std::vector<Span>> threads_;
  std::map<std::int64_t, std::string> processes_;
  std::map<Thread, std::string> thread_names_;
};

class ProfileOfRun : public SeveralProcesses {};

TEST_F(ProfileOfRun, ShowsTheRanksSideBySide) {
  const auto outcome =
      launch(2, with(small_act("run", "toy_state"),
                     {"--steps=5", "--profile.steps=2:4", "--num_workers=1", "--save_freq=3"}));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("profile/steps_2_4.json.gz (open it with"));
  EXPECT_THAT(outcome.text, testing::Not(HasSubstr("gpuGetDeviceCount")));
  const Trace trace(output("run") / "profile/steps_2_4.json.gz");
  ASSERT_EQ(trace.processes().size(), 2U);
  EXPECT_THAT(trace.processes().at(0), HasSubstr("rank 0 ("));
  EXPECT_THAT(trace.processes().at(100), HasSubstr("rank 1 ("));
  for (const std::int64_t process : {0, 100}) {
    EXPECT_THAT(trace.thread_names(process),
                IsSupersetOf({"training", "decode 1", "communication 1"}));
    for (const char* step : {"step 2", "step 3", "step 4"}) {
      const auto spans = trace.spans(process, step);
      ASSERT_EQ(spans.size(), 1U) << step;
      double parts = 0;
      for (const char* part : {"data", "preprocessing", "forward", "backward", "optimizer",
                               "checkpoint", "wait for all_gather", "wait for all_reduce"})
        for (const Span& span : trace.spans(process, part))
          if (span.begin >= spans[0].begin && span.end <= spans[0].end)
            parts += span.end - span.begin;
      const double whole = spans[0].end - spans[0].begin;
      EXPECT_GT(parts, 0.5 * whole) << step;
      EXPECT_LE(parts, 1.001 * whole) << step;
    }
    EXPECT_TRUE(trace.spans(process, "step 1").empty());
    EXPECT_TRUE(trace.spans(process, "step 5").empty());
    EXPECT_FALSE(trace.spans(process, "aten::mm").empty());
    EXPECT_FALSE(trace.spans(process, "decode").empty());
  }
  // Step 3 has the checkpoint, which rank 0 alone writes.
  EXPECT_EQ(trace.spans(0, "write checkpoint").size(), 1U);
  // The ranks have one clock: they go through step 3 together.
  const Span first = trace.spans(0, "step 3")[0], second = trace.spans(100, "step 3")[0];
  EXPECT_LT(std::max(first.begin, second.begin), std::min(first.end, second.end));
}

TEST_F(ProfileOfRun, IsWrittenWhenARunEndsWithinTheRange) {
  const auto outcome = run_program(
      with(small_act("run", "toy_state"), {"--steps=100000", "--profile.steps=2:100000"}),
      "step:4 ", SIGINT);
  ASSERT_EQ(outcome.code, 130) << outcome.text;
  const auto done = samples("run").size();
  const Trace trace(output("run") / fmt::format("profile/steps_2_{}.json.gz", done));
  EXPECT_EQ(trace.spans(0, fmt::format("step {}", done)).size(), 1U);
}

TEST_F(ProfileOfRun, DoesNotChangeWhatIsTrained) {
  ASSERT_EQ(train_program(with(small_act("plain", "toy_state"), {"--steps=3"})), 0);
  ASSERT_EQ(
      train_program(with(small_act("traced", "toy_state"), {"--steps=3", "--profile.steps=2:2"})),
      0);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(samples("plain")[i]["loss"], samples("traced")[i]["loss"]);
  // How a run is watched is no part of what it is: LeRobot reads the file.
  EXPECT_FALSE(read_json_file(checkpoint("traced", "000003") / "pretrained_model/train_config.json")
                   .contains("profile"));
}

TEST_F(ProfileOfRun, RefusesRangesThatARunDoesNotHave) {
  const auto refusal = [&](const std::string& steps) {
    const auto outcome =
        run_program(with(small_act("run", "toy_state"), {"--steps=5", "--profile.steps=" + steps}));
    EXPECT_EQ(outcome.code, 2) << steps;
    return outcome.text;
  };
  EXPECT_THAT(refusal("3:2"), HasSubstr("--profile.steps=3:2: expected A:B"));
  EXPECT_THAT(refusal("0:2"), HasSubstr("expected A:B"));
  EXPECT_THAT(refusal("first"), HasSubstr("expected A:B"));
  EXPECT_THAT(refusal("4:6"), HasSubstr("the run ends with step 5 (--steps=5)"));
  ASSERT_EQ(train_program(with(small_act("done", "toy_state"), {"--steps=2"})), 0);
  const auto outcome = run_program({"--resume=true", "--config_path=" + output("done").string(),
                                    "--steps=4", "--profile.steps=2:3"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("the run goes on after step 2, and its first step is 3"));
}

// What torch writes on a machine with GPUs, which tests don't have: its form.
TEST(ChromeTrace, GivesARanksGpuARowOfItsOwn) {
  const Json kineto = {{"baseTimeNanoseconds", 1'000'000'000},
                       {"traceEvents",
                        {{{"ph", "X"},
                          {"cat", "kernel"},
                          {"name", "gemm"},
                          {"pid", 1},
                          {"tid", 7},
                          {"ts", 5.5},
                          {"dur", 2}},
                         {{"ph", "s"},
                          {"cat", "ac2g"},
                          {"name", "ac2g"},
                          {"id", 9},
                          {"pid", 4242},
                          {"tid", 4242},
                          {"ts", 5}},
                         {{"ph", "X"},
                          {"cat", "Trace"},
                          {"name", "PyTorch Profiler (0)"},
                          {"pid", "Spans"},
                          {"tid", "x"},
                          {"ts", 1},
                          {"dur", 9}},
                         {{"ph", "M"},
                          {"name", "thread_name"},
                          {"pid", 1},
                          {"tid", 7},
                          {"ts", 1},
                          {"args", {{"name", "stream 7"}}}},
                         {{"ph", "M"},
                          {"name", "process_name"},
                          {"pid", 4242},
                          {"tid", 0},
                          {"ts", 1},
                          {"args", {{"name", "x"}}}}}}};
  const std::string text = rank_events(kineto, {},
                                       {.rank = 3,
                                        .host = "host",
                                        .process = 4242,
                                        .training_thread = 4242,
                                        .origin_ns = 1'000'001'000,
                                        .clock_offset_ns = 2'000});
  const Json events = parse_json("[" + text + "]", "events");
  const auto find = [&](const char* name) {
    for (const Json& event : events)
      if (event["name"] == name && event["ph"] != "M") return event;
    return Json();
  };
  EXPECT_EQ(find("gemm")["pid"], 302);
  EXPECT_DOUBLE_EQ(find("gemm")["ts"].get<double>(), 5.5 - 1 + 2);
  EXPECT_EQ(find("ac2g")["pid"], 300);
  EXPECT_EQ(find("ac2g")["id"], 9 + (std::int64_t{3} << 32));
  EXPECT_TRUE(find("PyTorch Profiler (0)").is_null());
  EXPECT_THAT(text, HasSubstr("rank 3 GPU 1"));
  EXPECT_THAT(text, HasSubstr("stream 7"));
}

}  // namespace
}  // namespace lerobot::train
