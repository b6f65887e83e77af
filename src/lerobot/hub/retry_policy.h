// When a failed request is made again, and after what wait.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace lerobot::hub {

/// Statuses that say "later": 408, 425, 429, 500, 502, 503, 504.
bool is_retryable_status(long status);

/// The wait that a Retry-After header asks for: seconds, or an HTTP date (RFC 9110, 10.2.3).
/// nullopt for anything else; a date in the past is 0.
std::optional<std::chrono::milliseconds> parse_retry_after(
    std::string_view value, std::chrono::system_clock::time_point now);

/// The wait that the Hub's RateLimit header asks for, `"api";r=0;t=55`: t + 1 seconds when no
/// request remains (r is 0), nullopt otherwise.
std::optional<std::chrono::milliseconds> parse_rate_limit(std::string_view value);

/// What the header says for people: "the limit of \"api\" requests is used up for 55 s"; nullopt
/// unless no request remains.
std::optional<std::string> describe_rate_limit(std::string_view value);

struct RetryPolicy {
  int attempts = 5;
  std::chrono::milliseconds first_backoff{500};
  std::chrono::milliseconds longest_backoff{5'000};
  /// What a server may ask for at most. The Hub counts requests in windows of 5 minutes.
  std::chrono::milliseconds longest_server_wait{300'000};

  /// The wait after the `failures`-th failure (1: the first). Exponential with a random lower half,
  /// so that clients which failed together don't come back together; what the server `asked` for,
  /// capped, goes before, and only lengthens by the jitter. `jitter` is in [0, 1).
  std::chrono::milliseconds wait(int failures, std::optional<std::chrono::milliseconds> asked,
                                 double jitter) const;
};

}  // namespace lerobot::hub
