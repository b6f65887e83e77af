// What this process uses, as the kernel counts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lerobot {

/// Memory in bytes. `proportional` (PSS) shares the pages of libraries among the processes that map
/// them; it is 0 where the kernel does not tell.
struct ProcessMemory {
  std::uint64_t resident = 0;
  std::uint64_t peak_resident = 0;
  std::uint64_t proportional = 0;
};

ProcessMemory process_memory();

/// The first two of them, which cost the kernel next to nothing.
struct ResidentMemory {
  std::uint64_t now = 0;
  std::uint64_t peak = 0;
};
ResidentMemory resident_memory();

/// Bytes that programs of this machine can still get without swapping, as the kernel estimates it.
std::uint64_t available_memory();

/// CPU seconds of all threads so far.
double process_cpu_seconds();

/// Seconds since the process was started, its loading included.
double process_age_seconds();

/// When a process of this machine was started, in the kernel's ticks after the machine's own start;
/// nothing when there is no such process. With its number it tells a process from all others.
std::optional<std::int64_t> process_start_ticks(std::int64_t process);

/// The name of this machine; "?" when it has none.
std::string host_name();

}  // namespace lerobot
