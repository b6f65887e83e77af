#include "lerobot/hub/http_request.h"

#include <random>
#include <utility>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

using std::chrono::milliseconds;

/// A wait that a user will notice is worth a line.
constexpr milliseconds kNoticeableWait{5'000};
constexpr std::size_t kLongestServerText = 200;

std::optional<milliseconds> server_wait(const HttpAnswer& answer) {
  if (const auto limit = answer.header("ratelimit"))
    if (const auto wait = parse_rate_limit(*limit)) return wait;
  if (const auto after = answer.header("retry-after"))
    return parse_retry_after(*after, std::chrono::system_clock::now());
  return std::nullopt;
}

}  // namespace

void Credentials::add_to(HttpExchange& exchange, const std::string& source_url) const {
  if (token && url_origin(exchange.url) == url_origin(source_url))
    exchange.headers.push_back("Authorization: Bearer " + *token);
}

std::string Credentials::describe() const {
  if (!token)
    return fmt::format(
        "no token was sent{}; a private or gated source needs one: set HF_TOKEN, or log in with "
        "`hf auth login`",
        origin.empty() ? "" : fmt::format(" (none in {})", origin));
  return fmt::format("the token from {} was sent; check that it may read this source",
                     origin.empty() ? "the caller" : origin);
}

std::string describe_status(const HttpAnswer& answer) {
  auto text = answer.header("x-error-message");
  if (const auto limit = rate_limit_words(answer)) text = text ? *limit + ", " + *text : *limit;
  if (!text) return fmt::format("status {}", answer.status);
  return fmt::format("status {} ({})", answer.status, printable_text(*text, kLongestServerText));
}

std::optional<std::string> rate_limit_words(const HttpAnswer& answer) {
  const auto limit = answer.status == 429 ? answer.header("ratelimit") : std::nullopt;
  return limit ? describe_rate_limit(*limit) : std::nullopt;
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string redirect_target(const HttpRequest& request, const std::string& url,
                            const HttpAnswer& answer) {
  const auto location = answer.header("location");
  if (!location)
    fail("{}: the server redirects (status {}) without saying where (no Location header)",
         request.describe(), answer.status);
  return join_url(url, *location);
}

std::optional<Step> judge_transport(const HttpRequest& request, const HttpExchange& exchange) {
  if (exchange.outcome == Outcome::kBroken) return Step::retry(exchange.reason);
  if (exchange.outcome == Outcome::kFailed) fail("{}: {}", request.describe(), exchange.reason);
  if (!is_retryable_status(exchange.answer.status)) return std::nullopt;
  Step step = Step::retry(describe_status(exchange.answer));
  step.status = exchange.answer.status;
  step.server_wait = server_wait(exchange.answer);
  return step;
}

void fail_status(const HttpRequest& request, const HttpAnswer& answer,
                 const Credentials& credentials) {
  const std::string status = describe_status(answer);
  if (answer.status == 401 || answer.status == 403)
    fail("{}: access denied, {}; {}", request.describe(), status, credentials.describe());
  if (answer.status == 404 || answer.status == 410)
    fail("{}: there is no such file on the server, {}", request.describe(), status);
  fail("{}: the server refuses, {}", request.describe(), status);
}

HttpSender::HttpSender(HttpEngine& engine, RetryPolicy policy)
    : engine_(engine), policy_(policy), random_(std::random_device()()) {}

/// SplitMix64 on a shared counter.
double HttpSender::jitter() {
  std::uint64_t x = random_.fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/// One call of send_all().
class HttpSender::Round {
 public:
  Round(HttpSender& sender, std::span<HttpRequest* const> requests)
      : sender_(sender), mailbox_(std::make_shared<Mailbox>()) {
    for (HttpRequest* request : requests) entries_.push_back({request});
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  /// Breaks off what is still under way, and waits until it is: sinks are the caller's memory.
  ~Round() {
    if (under_way_ == 0) return;
    sender_.engine_.abandon(*mailbox_);
    for (; under_way_ > 0; --under_way_) mailbox_->take();
  }

  void run(std::stop_token stop) {
    const std::stop_callback break_off(std::move(stop),
                                       [this] { sender_.engine_.abandon(*mailbox_); });
    for (Entry& entry : entries_) start(entry, {});
    while (under_way_ > 0) {
      const auto exchange = mailbox_->take();
      --under_way_;
      handle(*static_cast<Entry*>(exchange->owner), *exchange);
    }
  }

 private:
  struct Entry {
    HttpRequest* request = nullptr;
    int attempts = 1;  ///< the one under way included
    int failures = 0;  ///< in a row, without progress
    int hops = 0;      ///< exchanges that only led to another one
  };

  /// More steps than any honest chain of redirects and changes of method has.
  static constexpr int kMostHops = 20;

  void start(Entry& entry, HttpEngine::Clock::time_point not_before) {
    auto exchange = std::make_unique<HttpExchange>();
    entry.request->prepare(*exchange);
    exchange->owner = &entry;
    sender_.engine_.start(std::move(exchange), mailbox_, not_before);
    ++under_way_;
  }

  void handle(Entry& entry, const HttpExchange& exchange) {
    if (exchange.outcome == Outcome::kCancelled) {
      throw_when_interrupted();  // which is why, then
      fail("{}: the transfer was broken off: {}", entry.request->describe(), exchange.reason);
    }
    const Step step = entry.request->judge(exchange);
    if (step.kind == Step::kAgain) {
      if (++entry.hops > kMostHops)
        fail("{}: more than {} redirects", entry.request->describe(), kMostHops);
      start(entry, {});
    } else if (step.kind == Step::kRetry) {
      retry(entry, step);
    }
  }

  void retry(Entry& entry, const Step& step) {
    if (entry.request->made_progress()) entry.failures = 0;
    ++entry.failures;
    if (entry.failures >= sender_.policy_.attempts)
      throw UnreachableError(fmt::format("{}: {} ({} attempts); check the server and the network",
                                         entry.request->describe(), step.reason, entry.attempts),
                             step.status);
    const milliseconds wait =
        sender_.policy_.wait(entry.failures, step.server_wait, sender_.jitter());
    if (wait >= kNoticeableWait)
      log::info("{}: {}; trying again in {:.0f} s", entry.request->describe(), step.reason,
                std::chrono::duration<double>(wait).count());
    ++entry.attempts;
    start(entry, HttpEngine::Clock::now() + wait);
  }

  HttpSender& sender_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<Entry> entries_;
  std::size_t under_way_ = 0;
};

void HttpSender::send_all(std::span<HttpRequest* const> requests, std::stop_token stop) {
  Round(*this, requests).run(std::move(stop));
}

}  // namespace lerobot::hub
