#include "lerobot/train/run_log.h"

#include <sstream>
#include <string>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::train {
namespace {

/// The lines of `text` whose "step" is at most `last_step`. A last line that was cut is dropped
/// too.
std::string keep_lines_up_to(const std::string& text, std::int64_t last_step) {
  std::string kept;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number()) continue;
    if (object["step"].get<std::int64_t>() <= last_step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

JsonLines::JsonLines(std::filesystem::path path, std::int64_t resume_step)
    : path_(std::move(path)) {
  if (std::filesystem::exists(path_))
    write_file_atomic(path_, keep_lines_up_to(read_text_file(path_), resume_step));
  stream_.open(path_, std::ios::app | std::ios::binary);
  if (!stream_) fail("{}: cannot open for writing: {}", path_.string(), system_error_text(errno));
}

void JsonLines::append(const Json& object) {
  stream_ << to_python_json(object, -1) << '\n';
  stream_.flush();
  if (!stream_) fail("{}: cannot write: {}", path_.string(), system_error_text(errno));
}

}  // namespace lerobot::train
