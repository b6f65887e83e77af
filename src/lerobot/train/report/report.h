// report.html in a run's output folder: a page that needs nothing but itself, made from the run's
// records alone (run_data.h).
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace lerobot::train {

inline constexpr const char* kReportFile = "report.html";

/// Replaces report.html of the run in `folder` as a unit, and returns its path. Throws Error when
/// the folder holds no run, or can't be written.
std::filesystem::path write_report(const std::filesystem::path& folder);

/// Whether these are the arguments of `lerobot-train --report RUN` (or --report=RUN).
bool asks_for_report(std::span<const std::string> arguments);

/// Runs `lerobot-train --report RUN`: returns its exit code. Throws UsageError and Error.
int report_program(std::span<const std::string> arguments);

}  // namespace lerobot::train
