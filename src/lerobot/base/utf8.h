// Text that leaves this process as UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace lerobot {

bool is_utf8(std::string_view text);

/// `text` with U+FFFD in the place of every byte that is not UTF-8.
std::string to_utf8(std::string_view text);

}  // namespace lerobot
