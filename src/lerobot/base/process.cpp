#include "lerobot/base/process.h"

#include <fstream>
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

ProcessMemory process_memory() {
  return {.resident = read_kilobytes("/proc/self/status", "VmRSS:"),
          .peak_resident = read_kilobytes("/proc/self/status", "VmHWM:"),
          .proportional = read_kilobytes("/proc/self/smaps_rollup", "Pss:")};
}

std::uint64_t available_memory() { return read_kilobytes("/proc/meminfo", "MemAvailable:"); }

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double process_age_seconds() {
  // Field 22 of /proc/self/stat: start after boot, in clock ticks. The command name (field 2) may
  // contain spaces, so count from its closing parenthesis.
  std::ifstream stream("/proc/self/stat");
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto close = text.rfind(')');
  if (close == text.npos) return 0;
  std::istringstream fields(text.substr(close + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double started = std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started;
}

}  // namespace lerobot
