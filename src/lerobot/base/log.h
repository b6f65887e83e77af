// Log lines in LeRobot's form:
//   LEVEL YYYY-MM-DD HH:MM:SS <last 15 characters of "path:line"> message
#pragma once

#include <cstdint>
#include <source_location>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lerobot::log {

enum class Level { kInfo, kWarning, kError };

/// A format string that remembers where the call stands.
template <class... Args>
struct Format {
  template <class Text>
  consteval Format(const Text& text, std::source_location where = std::source_location::current())
      : text(text), where(where) {}
  fmt::format_string<Args...> text;
  std::source_location where;
};

/// Lines below `level` are dropped. Ranks other than 0 are set to kWarning.
void set_level(Level level);

/// Lines of a rank other than 0 begin their message with it: "rank 3: ...".
void set_rank(std::int64_t rank);

/// Called before and after a line is written, so that a progress bar can step aside. Thread-safe.
void set_line_hooks(void (*before)(), void (*after)());

/// Writes one line to standard error. Thread-safe.
void write(Level level, std::source_location where, std::string_view message);

template <class... Args>
void info(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  write(Level::kInfo, format.where, fmt::format(format.text, std::forward<Args>(args)...));
}
template <class... Args>
void warning(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  write(Level::kWarning, format.where, fmt::format(format.text, std::forward<Args>(args)...));
}
template <class... Args>
void error(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  write(Level::kError, format.where, fmt::format(format.text, std::forward<Args>(args)...));
}

}  // namespace lerobot::log
