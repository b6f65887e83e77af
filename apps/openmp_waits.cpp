// Sees that torch's OpenMP threads spin for some 50 us at a barrier before they sleep, instead of
// libgomp's several milliseconds. As soon as anything else wants a core (decode threads, another
// process), who spins that long keeps off the core the very thread that it waits for, and a step
// takes ten times as long. Spinning for as long as falling asleep and waking up take costs at most
// twice the best choice, and nothing that could be measured while the cores are free.
//
// libgomp reads its settings from the environment when it is loaded, and has no other way to set
// them. So the program starts itself again with GOMP_SPINCOUNT set, in the same process, before
// the constructors of any library have run: that costs a twentieth of a start. Users who set
// GOMP_SPINCOUNT or OMP_WAIT_POLICY keep what they chose.
#include <cstddef>
#include <cstring>
#include <unistd.h>

// AddressSanitizer is not ready that early.
#if !defined(__SANITIZE_ADDRESS__)

namespace {

bool is_set(char** environment, const char* name) {
  const std::size_t length = std::strlen(name);
  for (char** entry = environment; *entry != nullptr; ++entry)
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return true;
  return false;
}

// Nothing is initialised yet but the C library's plain functions. Returns when the program can't be
// started again: it then runs with libgomp's default.
void start_again_with_short_waits(int /*argc*/, char** argv, char** environment) {
  if (is_set(environment, "GOMP_SPINCOUNT") || is_set(environment, "OMP_WAIT_POLICY")) return;

  // Its own path: "/proc/self/exe" would be the name that top shows.
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) return;
  program[length] = '\0';

  std::size_t count = 0;
  while (environment[count] != nullptr) ++count;
  // One spin is a pause instruction, 10 to 140 cycles.
  char spins[] = "GOMP_SPINCOUNT=1000";
  auto** const more = static_cast<char**>(__builtin_alloca((count + 2) * sizeof(char*)));
  std::memcpy(more, environment, count * sizeof(char*));
  more[count] = spins;
  more[count + 1] = nullptr;
  execve(program, argv, more);
}

__attribute__((section(".preinit_array"),
               used)) void (*const before_libraries)(int, char**,
                                                     char**) = start_again_with_short_waits;

}  // namespace

#endif
