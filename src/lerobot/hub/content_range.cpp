#include "lerobot/hub/content_range.h"

#include <charconv>

namespace lerobot::hub {

std::optional<std::uint64_t> parse_byte_count(std::string_view value) {
  std::uint64_t count = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, count);
  if (error != std::errc() || stop != end) return std::nullopt;
  return count;
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  constexpr std::string_view kUnit = "bytes ";
  if (!value.starts_with(kUnit)) return std::nullopt;
  value.remove_prefix(kUnit.size());
  const std::size_t slash = value.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view range = value.substr(0, slash);
  const std::string_view size = value.substr(slash + 1);

  ContentRange out;
  if (size != "*") {
    out.size = parse_byte_count(size);
    if (!out.size) return std::nullopt;
  }
  if (range == "*") return out.size ? std::optional(out) : std::nullopt;
  const std::size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  out.first = parse_byte_count(range.substr(0, dash));
  out.last = parse_byte_count(range.substr(dash + 1));
  if (!out.first || !out.last || *out.first > *out.last) return std::nullopt;
  if (out.size && *out.last >= *out.size) return std::nullopt;
  return out;
}

}  // namespace lerobot::hub
