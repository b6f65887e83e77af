// Text for an HTML page. Whatever comes from configurations, datasets and files goes through
// escape_html().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lerobot::train {

/// For text and for attributes in double quotes.
std::string escape_html(std::string_view text);

/// JSON inside a <script> element: nothing in it can end the element.
std::string escape_script(std::string json);

/// "1.5 GiB"
std::string bytes_text(double bytes);
/// "3 h 12 min", "45 s", "0.31 s"
std::string duration_text(double seconds);
/// "2026-11-30 13:37:10 UTC"
std::string time_text(double unix_seconds);
/// Four significant digits; "NaN" and "inf" as such.
std::string number_text(double value);
/// 12345678 -> "12,345,678"
std::string count_text(std::int64_t count);

}  // namespace lerobot::train
