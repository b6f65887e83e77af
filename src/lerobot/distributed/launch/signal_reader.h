// Signals as something to wait for beside pipes.
#pragma once

#include <csignal>
#include <optional>

#include "lerobot/base/files.h"

namespace lerobot::distributed {

/// Reads SIGCHLD and the signals that are passed on to workers from a descriptor, while it lives;
/// writing to a closed pipe is an error code instead of SIGPIPE. A signal that the launcher was
/// started to ignore (nohup, "&" in a script) stays ignored. One object, in a program of one
/// thread.
class SignalReader {
 public:
  /// Throws SystemError.
  SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  ~SignalReader();

  int fd() const { return fd_.get(); }
  /// The next signal that has arrived; nullopt when there is none.
  std::optional<int> next();

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

/// True for the signals that ask for an end.
bool asks_for_end(int signal);

/// "SIGTERM".
const char* signal_name(int signal);

}  // namespace lerobot::distributed
