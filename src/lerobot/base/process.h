// What this process uses, as the kernel counts it.
#pragma once

#include <cstdint>

namespace lerobot {

/// Memory in bytes. `proportional` (PSS) shares the pages of libraries among the processes that map
/// them; it is 0 where the kernel does not tell.
struct ProcessMemory {
  std::uint64_t resident = 0;
  std::uint64_t peak_resident = 0;
  std::uint64_t proportional = 0;
};

ProcessMemory process_memory();

/// Bytes that programs of this machine can still get without swapping, as the kernel estimates it.
std::uint64_t available_memory();

/// CPU seconds of all threads so far.
double process_cpu_seconds();

/// Seconds since the process was started, its loading included.
double process_age_seconds();

}  // namespace lerobot
