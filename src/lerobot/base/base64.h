// Base64 (RFC 4648, section 4).
#pragma once

#include <string>
#include <string_view>

namespace lerobot {

/// `bytes` in the standard alphabet, with padding and without line breaks.
std::string base64(std::string_view bytes);

}  // namespace lerobot
