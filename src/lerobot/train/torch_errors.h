// What exceptions say to a user.
#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace lerobot::train {

/// The message; of torch's own errors without the call stack behind it.
inline std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace lerobot::train
