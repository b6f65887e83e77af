// The Content-Range header (RFC 9110, 14.4).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lerobot::hub {

/// "bytes 0-99/1000" has all three numbers, "bytes 0-99/*" no size, "bytes */1000" (of a 416) only
/// the size.
struct ContentRange {
  std::optional<std::uint64_t> first;
  std::optional<std::uint64_t> last;  ///< inclusive
  std::optional<std::uint64_t> size;  ///< of the whole content
};

/// nullopt for anything that is not of one of the three forms.
std::optional<ContentRange> parse_content_range(std::string_view value);

/// A number of digits only, as Content-Length is; nullopt for anything else, also beyond 64 bits.
std::optional<std::uint64_t> parse_byte_count(std::string_view value);

}  // namespace lerobot::hub
