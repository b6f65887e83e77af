#include "lerobot/base/log.h"

#include <atomic>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>

namespace lerobot::log {
namespace {

struct State {
  std::atomic<Level> level{Level::kInfo};
  std::atomic<std::int64_t> rank{0};
  std::mutex mutex;
  void (*before)() = nullptr;
  void (*after)() = nullptr;
};

State& state() {
  static State state;
  return state;
}

constexpr std::string_view level_name(Level level) {
  switch (level) {
    case Level::kInfo:
      return "INFO";
    case Level::kWarning:
      return "WARNING";
    case Level::kError:
      return "ERROR";
  }
  return "INFO";
}

}  // namespace

void set_level(Level level) { state().level = level; }
void set_rank(std::int64_t rank) { state().rank = rank; }

void set_line_hooks(void (*before)(), void (*after)()) {
  std::lock_guard lock(state().mutex);
  state().before = before;
  state().after = after;
}

void write(Level level, std::source_location where, std::string_view message) {
  State& s = state();
  if (level < s.level) return;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char time_text[32];
  std::strftime(time_text, sizeof time_text, "%Y-%m-%d %H:%M:%S", &local);
  std::string place = fmt::format("{}:{}", where.file_name(), where.line());
  if (place.size() > 15) place = place.substr(place.size() - 15);
  const std::int64_t rank = s.rank;
  const std::string line = fmt::format("{} {} {:>15} {}{}\n", level_name(level), time_text, place,
                                       rank == 0 ? "" : fmt::format("rank {}: ", rank), message);

  std::lock_guard lock(s.mutex);
  if (s.before) s.before();
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  if (s.after) s.after();
}

}  // namespace lerobot::log
