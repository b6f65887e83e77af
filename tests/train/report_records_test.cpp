// The report of records that are whole, damaged, missing, hostile or very long.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/train/report/charts.h"
#include "lerobot/train/report/html.h"
#include "lerobot/train/report/page.h"
#include "lerobot/train/report/report.h"
#include "lerobot/train/report/run_data.h"
#include "lerobot/train/report/thinning.h"
#include "lerobot/train/report/usage.h"
#include "tests/support/error_of.h"

namespace lerobot::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportOfRecords : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / fmt::format("lerobot report {} {}", test->name(), ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const char* file, const std::string& text) const {
    std::ofstream(folder_ / file, std::ios::binary) << text;
  }
  std::string page() const { return read_text_file(write_report(folder_)); }

  fs::path folder_;
};

TEST_F(ReportOfRecords, RefusesAFolderThatHoldsNoRun) {
  EXPECT_THAT(error_of([&] { write_report(folder_); }),
              HasSubstr("holds no records of a run (run.json, metrics.jsonl, checkpoints/)"));
  EXPECT_THAT(error_of([&] { write_report(folder_ / "none"); }), HasSubstr("is no folder"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(ReportOfRecords, LeavesOutWhatIsDamagedAndSaysSo) {
  write("metrics.jsonl",
        "{\"step\": 1, \"loss\": 2.5}\n"
        "{\"step\": 2, \"loss\"\n"
        "[1, 2]\n"
        "{\"loss\": 2}\n"
        "\n"
        "{\"step\": -3, \"loss\": 2}\n"
        "{\"step\": 4, \"loss\": \"text\", \"grdn\": 3}\n"
        "{\"step\": 5, \"loss\": 1.5}\n"
        "{\"step\": 6, \"lo");
  const RunData data = read_run_data(folder_);
  ASSERT_NE(data.find("loss"), nullptr);
  EXPECT_THAT(data.find("loss")->steps, ElementsAre(1, 5));
  EXPECT_THAT(data.find("loss")->values, ElementsAre(2.5, 1.5));
  EXPECT_THAT(data.notes, testing::Contains(HasSubstr("4 lines could not be read")));
  const std::string html = report_page(data);
  EXPECT_THAT(html, HasSubstr("metrics.jsonl: 4 lines could not be read and are left out"));
  EXPECT_THAT(html, HasSubstr(">unknown</span>"));
}

TEST_F(ReportOfRecords, SurvivesEveryDamageOfTheRunsFile) {
  write("metrics.jsonl", "{\"step\": 1, \"loss\": 2.5}\n");
  for (const char* text :
       {"", "{", "null", "[]", "3", "{\"status\": 3}", "{\"panel\": {}}", "{\"before\": [1, {}]}",
        "{\"steps\": -1, \"started\": -1e300, \"updated\": 1e300}", "{\"configuration\": [1]}",
        "{\"configuration\": {\"policy\": 3, \"steps\": \"many\"}}", "\x80\xff"}) {
    write("run.json", text);
    EXPECT_THAT(page(), HasSubstr("</html>")) << text;
  }
}

TEST_F(ReportOfRecords, TakesStepsThatWereDoneAgainFromTheirLastTime) {
  write("metrics.jsonl",
        "{\"step\": 10, \"loss\": 3}\n{\"step\": 20, \"loss\": 2}\n{\"step\": 30, \"loss\": 1}\n"
        "{\"step\": 20, \"loss\": 1.9}\n");
  EXPECT_THAT(read_run_data(folder_).find("loss")->values, ElementsAre(3, 1.9));
}

TEST_F(ReportOfRecords, ShowsValuesThatAreNotFiniteAsGaps) {
  write("metrics.jsonl",
        "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": NaN}\n"
        "{\"step\": 3, \"loss\": Infinity}\n{\"step\": 4, \"loss\": 1}\n");
  const std::string html = page();
  EXPECT_THAT(html, HasSubstr(R"("x":[1,2,3,4],"y":[2,null,null,1])"));
  EXPECT_THAT(html, HasSubstr("2 values not finite"));
}

TEST_F(ReportOfRecords, ShowsTextFromConfigurationsAsText) {
  const std::string attack = "</script><script>alert('x')</script><img src=\"y\" onerror=z>";
  Json state = {{"status", "failed"}, {"message", attack},
                {"command", attack},  {"panel", {attack}},
                {"host", attack},     {"configuration", {{"job_name", attack}, {attack, attack}}}};
  write("run.json", state.dump());
  write("metrics.jsonl", Json({{"step", 1}, {"loss", 1}, {attack, 2}}).dump() + "\n");
  const std::string html = page();
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)"));
  // Two elements of ours: the data and the program.
  std::size_t scripts = 0;
  for (std::size_t at = html.find("</script>"); at != html.npos;
       at = html.find("</script>", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2U);
}

TEST_F(ReportOfRecords, NeedsNothingFromElsewhere) {
  write("metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n");
  const std::string html = page();
  EXPECT_THAT(html, Not(HasSubstr(" src=")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
  EXPECT_THAT(html, Not(HasSubstr("<link")));
  EXPECT_THAT(html, HasSubstr("name=\"viewport\""));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
}

TEST_F(ReportOfRecords, StaysSmallForALongRun) {
  std::string lines;
  for (int step = 1; step <= 100'000; ++step)
    lines += fmt::format(
        "{{\"step\": {}, \"loss\": {}, \"grdn\": 1.5, \"lr\": 0.001, \"time_forward_s\": 0.25, "
        "\"samples_per_s\": 12.5, \"unix_time\": {}}}\n",
        step, 10.0 / step, 1.7e9 + step);
  write("metrics.jsonl", lines);
  EXPECT_LT(page().size(), 1U << 20);
}

TEST_F(ReportOfRecords, CountsTheTimeBetweenLinesOnce) {
  write("metrics.jsonl",
        "{\"step\": 10, \"time_forward_s\": 0.5, \"time_checkpoint_s\": 9}\n"
        "{\"step\": 10, \"checkpoint_stall_s\": 3}\n"
        "{\"step\": 30, \"time_forward_s\": 0.25, \"time_checkpoint_s\": 9}\n"
        "{\"step\": 30, \"checkpoint_stall_s\": 1}\n");
  const auto shares = time_shares(read_run_data(folder_));
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].name, "forward");
  EXPECT_DOUBLE_EQ(shares[0].seconds, 10 * 0.5 + 20 * 0.25);
  EXPECT_EQ(shares[1].name, "checkpoint");
  EXPECT_DOUBLE_EQ(shares[1].seconds, 4);
}

TEST_F(ReportOfRecords, ListsCheckpointsWithTheirHeldOutLoss) {
  write("metrics.jsonl", "{\"step\": 4, \"eval_loss\": 0.5}\n");
  fs::create_directories(folder_ / "checkpoints/000004/pretrained_model");
  fs::create_directories(folder_ / "checkpoints/000008");
  fs::create_directory_symlink("000004", folder_ / "checkpoints/last");
  write("checkpoints/000004/pretrained_model/config.json", std::string(1000, ' '));
  const RunData data = read_run_data(folder_);
  ASSERT_EQ(data.checkpoints.size(), 2U);
  EXPECT_EQ(data.checkpoints[0].step, 4);
  EXPECT_EQ(data.checkpoints[0].bytes, 1000U);
  EXPECT_TRUE(data.checkpoints[0].is_last);
  EXPECT_EQ(data.checkpoints[0].held_out_loss, 0.5);
  EXPECT_FALSE(data.checkpoints[1].held_out_loss);
  EXPECT_FALSE(data.checkpoints[0].missing.empty());
  EXPECT_TRUE(usages(data).empty()) << "nothing is complete";
}

TEST(Thinning, KeepsExtremesAndMeansOfEveryBucket) {
  Series series;
  for (int i = 1; i <= 10; ++i) {
    series.steps.push_back(i * 100);
    series.values.push_back(i == 7 ? std::numeric_limits<double>::quiet_NaN() : i);
  }
  const auto points = thin(series, 4);
  ASSERT_EQ(points.size(), 4U);  // of three values each, the last one of one
  EXPECT_EQ(points[0].step, 300);
  EXPECT_EQ(points[0].least, 1);
  EXPECT_EQ(points[0].greatest, 3);
  EXPECT_EQ(points[0].mean, 2);
  EXPECT_EQ(points[2].not_finite, 1);
  EXPECT_EQ(points[2].mean, 8.5);
  EXPECT_EQ(points[3].step, 1000);
  EXPECT_EQ(thin(series, 100).size(), 10U);
  EXPECT_TRUE(thin({}, 4).empty());
}

TEST(ReportText, SaysNumbersAsPeopleDo) {
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(count_text(-100), "-100");
  EXPECT_EQ(count_text(-1000), "-1,000");
  EXPECT_EQ(bytes_text(1.5 * 1024 * 1024), "1.50 MiB");
  EXPECT_EQ(duration_text(3723), "1 h 2 min");
  EXPECT_EQ(duration_text(0.5), "0.50 s");
  EXPECT_EQ(duration_text(NAN), "?");
  EXPECT_EQ(time_text(0.5e9), "1985-11-05 00:53:20 UTC");
  EXPECT_EQ(time_text(1e300), "?");
}

}  // namespace
}  // namespace lerobot::train
