// What a test of a message calls.
#pragma once

#include <string>

#include "lerobot/base/error.h"

namespace lerobot {

/// The message of the Error that `function` throws; "no error" when it throws none.
template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace lerobot
