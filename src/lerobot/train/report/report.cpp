#include "lerobot/train/report/report.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/log.h"
#include "lerobot/train/report/page.h"
#include "lerobot/train/report/run_data.h"

namespace lerobot::train {
namespace {

constexpr std::string_view kOption = "--report";
constexpr std::string_view kOptionWithValue = "--report=";

bool is_report_option(const std::string& argument) {
  return argument == kOption || argument.starts_with(kOptionWithValue);
}

fs::path write_page(const RunData& data) {
  const fs::path file = data.folder / kReportFile;
  write_file_atomic(file, report_page(data));
  return file;
}

}  // namespace

fs::path write_report(const fs::path& folder) { return write_page(read_run_data(folder)); }

bool asks_for_report(std::span<const std::string> arguments) {
  return std::ranges::any_of(arguments, is_report_option);
}

int report_program(std::span<const std::string> arguments) {
  std::optional<std::string> folder;
  if (arguments.size() == 1 && arguments[0].starts_with(kOptionWithValue))
    folder = arguments[0].substr(kOptionWithValue.size());
  else if (arguments.size() == 2 && arguments[0] == kOption && !arguments[1].starts_with("--"))
    folder = arguments[1];
  if (!folder || folder->empty())
    fail_usage(
        "--report: expected `lerobot-train --report RUN` and nothing else, RUN being the "
        "output folder of a run");
  const RunData data = read_run_data(*folder);
  for (const std::string& note : data.notes) log::warning("{}", note);
  log::info("Report: {}", write_page(data).string());
  return 0;
}

}  // namespace lerobot::train
