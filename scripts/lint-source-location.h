// Included before every file that scripts/lint looks at: libstdc++ has std::source_location only
// for compilers that know __builtin_source_location, as Debian 12's clang-tidy 14 does not.
#pragma once

#include <cstdint>
#include <version>

#if !defined(__cpp_lib_source_location)
namespace std {
struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           uint_least32_t line = __builtin_LINE()) {
    source_location here;
    here.file_ = file;
    here.line_ = line;
    return here;
  }
  constexpr uint_least32_t line() const noexcept { return line_; }
  constexpr const char* file_name() const noexcept { return file_; }

 private:
  const char* file_ = "";
  uint_least32_t line_ = 0;
};
}  // namespace std
#endif
