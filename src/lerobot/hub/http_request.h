// Requests that get there: exchanges repeated and redirected until there is an answer or an Error.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "lerobot/base/error.h"
#include "lerobot/hub/http_engine.h"
#include "lerobot/hub/retry_policy.h"

namespace lerobot::hub {

/// Every attempt failed in a way that may pass: no connection, or a status that says "later".
class UnreachableError : public Error {
 public:
  UnreachableError(const std::string& message, long status) : Error(message), status_(status) {}
  /// Of the last answer; 0 when there was none.
  long status() const { return status_; }

 private:
  long status_;
};

/// The token of a source and the one origin that may see it.
struct Credentials {
  std::optional<std::string> token;
  /// Where the token came from ("HF_TOKEN", a file's path), or, without one, where it was looked
  /// for; for messages; never the token.
  std::string origin;

  /// Puts the Authorization header on `exchange` when its URL has the origin (scheme, host and
  /// port) of `source_url`.
  void add_to(HttpExchange& exchange, const std::string& source_url) const;
  /// "no token was sent; ..." or "the token from HF_TOKEN was sent; ...".
  std::string describe() const;
};

/// What a request makes of an answer.
struct Step {
  enum Kind {
    kDone,   ///< the request has what it wants
    kAgain,  ///< prepare and send another exchange at once (a redirect, another method)
    kRetry,  ///< the attempt failed in a way that may pass
  };
  Kind kind = kDone;
  std::string reason = {};                                    ///< of kRetry
  long status = 0;                                            ///< of a kRetry's answer; 0: none
  std::optional<std::chrono::milliseconds> server_wait = {};  ///< that a kRetry's answer asked for

  static Step done() { return {}; }
  static Step again() { return {.kind = kAgain}; }
  static Step retry(std::string reason) { return {.kind = kRetry, .reason = std::move(reason)}; }
};

/// One thing wanted from a server. prepare() and judge() run on the thread of send_all().
class HttpRequest {
 public:
  virtual ~HttpRequest() = default;
  /// Fills in the next exchange.
  virtual void prepare(HttpExchange& exchange) = 0;
  /// Looks at a finished exchange (never a cancelled one). Throws Error when the request can't
  /// succeed.
  virtual Step judge(const HttpExchange& exchange) = 0;
  /// What messages call it: the URL, fit to be shown, and the bytes.
  virtual std::string describe() const = 0;
  /// True when the last attempt, though it failed, got on so far that it shouldn't count.
  virtual bool made_progress() { return false; }
};

/// The step that all requests take alike: transport failures and the statuses that say "later" are
/// retried, failures for good throw. nullopt: an answer that the request must judge itself.
std::optional<Step> judge_transport(const HttpRequest& request, const HttpExchange& exchange);

/// Throws the Error for a status that no attempt will better: "access denied" and what was sent for
/// 401 and 403, "there is no such file" for 404 and 410, else status and reason.
[[noreturn]] void fail_status(const HttpRequest& request, const HttpAnswer& answer,
                              const Credentials& credentials);

/// "status 503 (reason that the server gave)".
std::string describe_status(const HttpAnswer& answer);

/// Of a 429 with a RateLimit header: which limit is used up, and for how long.
std::optional<std::string> rate_limit_words(const HttpAnswer& answer);

/// True for 301, 302, 303, 307 and 308.
bool is_redirect(long status);

/// The absolute URL that a redirect answer to `url` leads to. Throws Error when it names none.
std::string redirect_target(const HttpRequest& request, const std::string& url,
                            const HttpAnswer& answer);

/// Sends requests side by side. Thread-safe.
class HttpSender {
 public:
  HttpSender(HttpEngine& engine, RetryPolicy policy);

  /// Returns when all are done. Throws the Error of the first that fails, when the others have been
  /// broken off: no sink is written to afterwards. Throws Error, too, when the engine is cancelled
  /// or a stop is asked for.
  void send_all(std::span<HttpRequest* const> requests, std::stop_token stop = {});

 private:
  class Round;
  double jitter();

  HttpEngine& engine_;
  const RetryPolicy policy_;
  std::atomic<std::uint64_t> random_;
};

}  // namespace lerobot::hub
