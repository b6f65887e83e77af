#include "lerobot/train/report/html.h"

#include <array>
#include <cmath>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace lerobot::train {

std::string escape_html(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string escape_script(std::string json) {
  std::string escaped;
  escaped.reserve(json.size());
  for (const char c : json)
    if (c == '<')
      escaped += "\\u003c";
    else
      escaped += c;
  return escaped;
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", bytes, kUnits[unit])
                   : fmt::format("{:.{}f} {}", bytes, bytes < 10 ? 2 : 1, kUnits[unit]);
}

std::string duration_text(double seconds) {
  constexpr double kMostSeconds = 1e11;
  if (!std::isfinite(seconds) || seconds < 0 || seconds > kMostSeconds) return "?";
  if (seconds < 10) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  const std::int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{} d {} h", days, hours);
  if (hours > 0) return fmt::format("{} h {} min", hours, minutes);
  if (minutes > 0) return fmt::format("{} min {} s", minutes, whole % 60);
  return fmt::format("{} s", whole);
}

std::string time_text(double unix_seconds) {
  constexpr double kYear10000 = 253402300800.0;
  if (!(unix_seconds > 0 && unix_seconds < kYear10000)) return "?";
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", utc);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{:.4g}", value);
}

std::string count_text(std::int64_t count) {
  const std::string digits = std::to_string(count);
  const std::size_t sign = digits.front() == '-' ? 1 : 0;
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace lerobot::train
