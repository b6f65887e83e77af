#include "lerobot/hub/retry_policy.h"

#include <algorithm>
#include <charconv>
#include <string>

#include <curl/curl.h>
#include <fmt/format.h>

#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kLongestSeconds = 1'000'000'000;  // beyond any wait, far from overflow

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

constexpr std::size_t kLongestGroup = 40;

std::optional<std::int64_t> parse_seconds(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty() || text.front() == '-') return std::nullopt;
  if (error == std::errc::result_out_of_range) return kLongestSeconds;
  if (error != std::errc()) return std::nullopt;
  return std::min(value, kLongestSeconds);
}

}  // namespace

bool is_retryable_status(long status) {
  return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504;
}

std::optional<milliseconds> parse_retry_after(std::string_view value,
                                              std::chrono::system_clock::time_point now) {
  value = trim(value);
  if (const auto count = parse_seconds(value)) return seconds(*count);
  const std::time_t date = curl_getdate(std::string(value).c_str(), nullptr);
  if (date < 0) return std::nullopt;
  const auto wait = std::chrono::system_clock::from_time_t(date) - now;
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(wait));
}

std::optional<milliseconds> parse_rate_limit(std::string_view value) {
  std::optional<std::int64_t> remaining;
  std::optional<std::int64_t> reset;
  while (!value.empty()) {
    const std::size_t end = std::min(value.find(';'), value.size());
    const std::string_view field = trim(value.substr(0, end));
    if (field.starts_with("r=")) remaining = parse_seconds(field.substr(2));
    if (field.starts_with("t=")) reset = parse_seconds(field.substr(2));
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  if (remaining != 0 || !reset) return std::nullopt;
  return seconds(*reset + 1);
}

std::optional<std::string> describe_rate_limit(std::string_view value) {
  const auto wait = parse_rate_limit(value);
  if (!wait) return std::nullopt;
  const std::string_view group = trim(value.substr(0, value.find(';')));
  return fmt::format("the limit of {} requests is used up for {} s",
                     printable_text(std::string(group), kLongestGroup),
                     std::chrono::duration_cast<seconds>(*wait).count());
}

milliseconds RetryPolicy::wait(int failures, std::optional<milliseconds> asked,
                               double jitter) const {
  const auto part = [jitter](milliseconds whole) {
    return milliseconds(static_cast<std::int64_t>(jitter * static_cast<double>(whole.count())));
  };
  if (asked) return std::min(*asked, longest_server_wait) + part(first_backoff);
  milliseconds backoff = std::min(first_backoff, longest_backoff);
  for (int i = 1; i < failures && backoff < longest_backoff; ++i)
    backoff = std::min(2 * backoff, longest_backoff);
  return backoff / 2 + part(backoff / 2);
}

}  // namespace lerobot::hub
