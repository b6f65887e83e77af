// The errors that reach a user, and the ones that are our own fault.
//
// Throw with fail(), which formats: fail("{}: expected {} bytes, found {}", path, want, got).
// A message names the thing (file, field, option), says what was expected and found, run-time
// values last, and what to do about it. Programs print it as one line and exit with exit_code().
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/std.h>

namespace lerobot {

/// Something outside the program is wrong: a file, a server, the disk, the data.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual int exit_code() const noexcept { return 1; }
};

/// The command line or configuration is wrong: nothing has been touched yet.
class UsageError : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 2; }
};

/// What the operating system refused. Carries errno, so that a caller who knows more can add the
/// remedy.
class SystemError : public Error {
 public:
  SystemError(const std::string& message, int error_number)
      : Error(message), error_number_(error_number) {}
  int error_number() const noexcept { return error_number_; }

 private:
  int error_number_;
};

/// A broken promise inside this program. Not reachable by any input; a bug when seen.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws UsageError with a formatted message.
template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InternalError when `condition` is false. For promises between our own functions only.
inline void check_internal(bool condition, const char* what) {
  if (!condition) throw InternalError(what);
}

/// The text of errno-style code `error_number`, for instance "No space left on device".
std::string system_error_text(int error_number);

/// Throws SystemError with a formatted message followed by ": " and errno's text.
template <class... Args>
[[noreturn]] void fail_system(int error_number, fmt::format_string<Args...> format,
                              Args&&... args) {
  throw SystemError(fmt::format("{}: {}", fmt::format(format, std::forward<Args>(args)...),
                                system_error_text(error_number)),
                    error_number);
}

}  // namespace lerobot
