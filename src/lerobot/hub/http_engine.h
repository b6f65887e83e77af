// Plain HTTP exchanges, many at a time on one thread: the layer that knows libcurl and nothing
// else.
//
// An exchange is one request and its answer. Redirects aren't followed, nothing is tried again, no
// status is an error: that is for the layer above (http_request.h).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lerobot::hub {

struct HttpAnswer {
  long status = 0;
  /// In the order of arrival; names in lower case, values without outer blanks.
  std::vector<std::pair<std::string, std::string>> headers;

  /// The first header of that (lower-case) name.
  std::optional<std::string> header(std::string_view name) const;
};

/// Takes the body of an answer, on the engine's thread. Must not block.
class BodySink {
 public:
  virtual ~BodySink() = default;
  /// False: the next `size` bytes can't be taken now; the transfer pauses until this is true after
  /// an HttpEngine::wake().
  virtual bool has_room(std::size_t /*size*/) { return true; }
  /// Called before the first byte. False: the body is of no use, it is dropped (and the transfer
  /// cut when it is long).
  virtual bool begin(const HttpAnswer& answer) = 0;
  /// False: no more is taken; the transfer is cut and the exchange ends as kRefused.
  virtual bool write(std::span<const std::uint8_t> bytes) = 0;
};

/// Gives the body of a request, on the engine's thread: from memory or a local file.
class BodySource {
 public:
  virtual ~BodySource() = default;
  /// In bytes; read() gives as many, or throws.
  virtual std::uint64_t size() const = 0;
  /// Back to the first byte: a kept-alive connection may turn out to be closed.
  virtual void rewind() = 0;
  /// The next bytes, as many as there are and fit: 0 at the end.
  virtual std::size_t read(std::span<std::uint8_t> out) = 0;
};

enum class Outcome {
  kAnswered,   ///< there is a status, and the body, if wanted, is complete
  kBroken,     ///< the transport failed in a way that may pass: refused, reset, short, stalled, DNS
  kFailed,     ///< the transport failed for good: certificate, bad URL
  kRefused,    ///< the sink wanted no more
  kCancelled,  ///< by cancel() or because its mailbox was abandoned
};

struct HttpExchange {
  std::string url;
  std::string method = "GET";
  std::vector<std::string> headers;  ///< "Name: value", beside what every request carries
  BodySource* body = nullptr;        ///< not owned; of a POST or PUT, null: an empty one
  BodySink* sink = nullptr;          ///< not owned; null drops the body
  /// Instead of HttpEngineOptions::stall_timeout: for what the server must work on.
  std::optional<std::chrono::milliseconds> stall_timeout;
  /// It must not reach the server twice: it gets a connection of its own. On one that was kept
  /// alive and turns out to be closed, libcurl would send it again, not knowing what became of it.
  bool once = false;
  void* owner = nullptr;  ///< the caller's own mark, not touched

  HttpAnswer answer;
  Outcome outcome = Outcome::kCancelled;
  std::string reason;  ///< of an outcome other than kAnswered
};

/// Where finished exchanges arrive. Every exchange that was started arrives exactly once.
class Mailbox {
 public:
  void put(std::unique_ptr<HttpExchange> exchange);
  /// Waits for the next one.
  std::unique_ptr<HttpExchange> take();

 private:
  friend class HttpEngine;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::unique_ptr<HttpExchange>> exchanges_;
  std::atomic<bool> abandoned_ = false;
};

/// "lerobot.cpp; libcurl/VERSION", with what HF_HUB_USER_AGENT_ORIGIN adds: "; origin/...".
std::string default_user_agent();

struct HttpEngineOptions {
  /// Exchanges under way at once, hence also connections to one server.
  std::size_t connections = 8;
  std::chrono::milliseconds connect_timeout{10'000};
  /// An exchange is broken off when no byte arrives for this long, or less than 1 KiB/s over it.
  std::chrono::milliseconds stall_timeout{30'000};
  std::string user_agent = default_user_agent();
};

/// Thread-safe. Kept-alive connections, HTTP/2 where a server offers it over TLS, proxies from the
/// environment, certificates from the system's store or what SSL_CERT_FILE, REQUESTS_CA_BUNDLE or
/// CURL_CA_BUNDLE names.
class HttpEngine {
 public:
  using Clock = std::chrono::steady_clock;

  explicit HttpEngine(HttpEngineOptions options);
  /// Cancels what is under way.
  ~HttpEngine();

  /// Starts `exchange` at `not_before` or when a connection is free, whatever is later; first come,
  /// first served. It arrives in `mailbox`.
  void start(std::unique_ptr<HttpExchange> exchange, std::shared_ptr<Mailbox> mailbox,
             Clock::time_point not_before = {});
  /// What was started for `mailbox` arrives there soon, as kCancelled if it isn't finished.
  void abandon(Mailbox& mailbox);
  /// All exchanges, now and later, arrive soon as kCancelled.
  void cancel();
  /// Paused transfers ask their sinks again whether there is room.
  void wake();
  /// Body bytes that came in so far, the dropped ones included.
  std::uint64_t bytes_received() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lerobot::hub
