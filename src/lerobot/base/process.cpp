#include "lerobot/base/process.h"

#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace lerobot {
namespace {

/// The number of kilobytes in the line "<name>   123 kB" of a /proc file, in bytes; 0 if absent.
std::uint64_t read_kilobytes(const char* file, const std::string& name) {
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    if (line.compare(0, name.size(), name) != 0) continue;
    std::istringstream fields(line.substr(name.size()));
    std::uint64_t kilobytes = 0;
    fields >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

ResidentMemory resident_memory() {
  return {.now = read_kilobytes("/proc/self/status", "VmRSS:"),
          .peak = read_kilobytes("/proc/self/status", "VmHWM:")};
}

ProcessMemory process_memory() {
  const auto [now, peak] = resident_memory();
  return {.resident = now,
          .peak_resident = peak,
          .proportional = read_kilobytes("/proc/self/smaps_rollup", "Pss:")};
}

std::uint64_t available_memory() { return read_kilobytes("/proc/meminfo", "MemAvailable:"); }

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::optional<std::int64_t> process_start_ticks(std::int64_t process) {
  // Field 22 of /proc/PROCESS/stat. The command name (field 2) may contain spaces, so count from
  // its closing parenthesis.
  std::ifstream stream("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto close = text.rfind(')');
  if (close == text.npos) return std::nullopt;
  std::istringstream fields(text.substr(close + 1));
  std::string skipped;
  for (int i = 3; i < 22; ++i) fields >> skipped;
  std::int64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return ticks;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

double process_age_seconds() {
  const auto ticks = process_start_ticks(::getpid());
  if (!ticks) return 0;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double started = static_cast<double>(*ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started;
}

}  // namespace lerobot
