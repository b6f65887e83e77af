#include "lerobot/base/error.h"

#include <system_error>

namespace lerobot {

std::string system_error_text(int error_number) {
  return std::generic_category().message(error_number);
}

}  // namespace lerobot
