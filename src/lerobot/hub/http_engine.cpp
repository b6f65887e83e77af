#include "lerobot/hub/http_engine.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <list>
#include <thread>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/hub/curl_handle.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

using Clock = HttpEngine::Clock;
using std::chrono::milliseconds;

/// The body of an error page is read up to here, which keeps the connection; beyond, closing it is
/// cheaper.
constexpr std::uint64_t kDroppedBody = 64 << 10;
/// A transfer below this many bytes a second is as good as none.
constexpr std::uint64_t kSlowest = 1024;
/// libcurl's buffer for one system call. With its default of 16 KiB, ten times as many are made.
constexpr long kReceiveBuffer = 256 << 10;
constexpr long kSendBuffer = 256 << 10;
constexpr std::size_t kMostHeaders = 200;
/// Connections are kept alive for this many servers.
constexpr long kServers = 3;

/// True for a failure that another attempt may not meet.
bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return true;
    default:
      return false;
  }
}

/// An exchange under way and what libcurl needs to carry it.
struct Transfer {
  std::unique_ptr<HttpExchange> exchange;
  std::shared_ptr<Mailbox> mailbox;
  CurlEasy easy;
  CurlList headers;
  char detail[CURL_ERROR_SIZE] = "";
  Clock::time_point last_byte;
  Clock::time_point window_start;
  std::uint64_t window_bytes = 0;
  std::uint64_t dropped = 0;
  bool begun = false;
  bool wanted = false;
  bool refused = false;
  bool cut = false;     ///< we closed it, having seen all that matters
  bool paused = false;  ///< the sink had no room
  std::string failure;  ///< of the sink or the body's source
  std::atomic<std::uint64_t>* received = nullptr;

  void count(std::size_t bytes) {
    last_byte = Clock::now();
    window_bytes += bytes;
  }

  void on_header_line(std::string_view line) {
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {  // a new answer: what came before was a 1xx
      exchange->answer.headers.clear();
      return;
    }
    const std::size_t colon = line.find(':');
    if (begun || colon == std::string_view::npos) return;  // trailers can't change the answer
    if (exchange->answer.headers.size() >= kMostHeaders) return;
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.front())))
      value.remove_prefix(1);
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back())))
      value.remove_suffix(1);
    exchange->answer.headers.emplace_back(std::move(name), value);
  }

  /// False cuts the transfer.
  bool on_body(std::span<const std::uint8_t> bytes) {
    if (!begun) {
      begun = true;
      read_status();
      wanted = exchange->sink && exchange->sink->begin(exchange->answer);
    }
    if (wanted) {
      refused = !exchange->sink->write(bytes);
      return !refused;
    }
    dropped += bytes.size();
    cut = dropped > kDroppedBody;
    return !cut;
  }

  void read_status() {
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &exchange->answer.status);
  }

  bool has_room(std::size_t size) const {
    return !exchange->sink || exchange->sink->has_room(size);
  }

  // libcurl's callbacks. No exception may cross its C code.
  static std::size_t header_callback(char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      transfer.count(size);
      transfer.on_header_line({data, size});
      return size;
    } catch (const std::exception& error) {
      transfer.failure = error.what();
      return 0;
    }
  }

  static std::size_t upload_callback(char* out, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      if (!transfer.exchange->body) return 0;
      const std::size_t given =
          transfer.exchange->body->read({reinterpret_cast<std::uint8_t*>(out), size});
      transfer.count(given);
      return given;
    } catch (const std::exception& error) {
      transfer.failure = error.what();
      return CURL_READFUNC_ABORT;
    }
  }

  static int seek_callback(void* self, curl_off_t offset, int whence) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (whence != SEEK_SET || offset != 0) return CURL_SEEKFUNC_CANTSEEK;
    try {
      if (transfer.exchange->body) transfer.exchange->body->rewind();
      return CURL_SEEKFUNC_OK;
    } catch (const std::exception& error) {
      transfer.failure = error.what();
      return CURL_SEEKFUNC_FAIL;
    }
  }

  static std::size_t body_callback(char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      if (!transfer.has_room(size)) {
        transfer.paused = true;
        return CURL_WRITEFUNC_PAUSE;  // libcurl keeps the bytes and brings them again
      }
      transfer.count(size);
      *transfer.received += size;
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(data);
      return transfer.on_body({bytes, size}) ? size : CURL_WRITEFUNC_ERROR;
    } catch (const std::exception& error) {
      transfer.failure = error.what();
      return CURL_WRITEFUNC_ERROR;
    }
  }
};

struct Waiting {
  std::unique_ptr<HttpExchange> exchange;
  std::shared_ptr<Mailbox> mailbox;
  Clock::time_point not_before;
};

void deliver(std::unique_ptr<HttpExchange> exchange, Mailbox& mailbox, Outcome outcome,
             std::string reason) {
  exchange->outcome = outcome;
  exchange->reason = std::move(reason);
  mailbox.put(std::move(exchange));
}

CurlList header_list(const HttpExchange& exchange) {
  CurlList list;
  const auto append = [&list](const char* line) {
    curl_slist* longer = curl_slist_append(list.get(), line);
    if (!longer) fail("out of memory");
    (void)list.release();
    list.reset(longer);
  };
  append("Accept-Encoding: identity");  // ranges and sizes are those of the file itself
  append("Expect:");                    // a body is sent at once, not after a "100 Continue"
  for (const std::string& line : exchange.headers) append(line.c_str());
  return list;
}

void set_up_method(Transfer& transfer) {
  CURL* curl = transfer.easy.get();
  const HttpExchange& exchange = *transfer.exchange;
  if (exchange.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    return;
  }
  if (exchange.method == "GET") return;
  if (exchange.method == "POST" || exchange.method == "PUT") {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE,
                     exchange.body ? static_cast<curl_off_t>(exchange.body->size()) : 0);
    if (exchange.body) exchange.body->rewind();
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, &Transfer::upload_callback);
    curl_easy_setopt(curl, CURLOPT_READDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, &Transfer::seek_callback);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, kSendBuffer);
  }
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, exchange.method.c_str());
}

/// The variables by which users of Python's clients name a private certificate authority: a file,
/// or a folder as OpenSSL wants it.
void set_up_authorities(CURL* curl) {
  for (const char* name : {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}) {
    const char* authorities = std::getenv(name);
    if (!authorities || !*authorities) continue;
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(authorities, ignored);
    curl_easy_setopt(curl, folder ? CURLOPT_CAPATH : CURLOPT_CAINFO, authorities);
    return;
  }
}

/// libcurl takes proxies, and whom to spare them, from the environment, but for HTTP_PROXY: in a
/// CGI program that would be a header of the request. Python takes it elsewhere.
void set_up_proxy(CURL* curl, const std::string& url) {
  const auto given = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? value : nullptr;
  };
  if (!url.starts_with("http:") || given("http_proxy") || given("REQUEST_METHOD")) return;
  if (const char* proxy = given("HTTP_PROXY")) curl_easy_setopt(curl, CURLOPT_PROXY, proxy);
}

void set_up(Transfer& transfer, const HttpEngineOptions& options) {
  CURL* curl = transfer.easy.get();
  const HttpExchange& exchange = *transfer.exchange;
  curl_easy_reset(curl);  // keeps TLS sessions
  curl_easy_setopt(curl, CURLOPT_URL, exchange.url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500  // 7.85 replaced the bit masks by names
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  // Without it, breaking off a transfer waits for the system's name look-up, which may take long.
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
#endif
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  // HTTP/2 by ALPN. Transfers don't wait for a connection that could be shared (CURLOPT_PIPEWAIT):
  // several connections have several congestion windows, which is what the option is for.
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, 30L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, 15L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kReceiveBuffer);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, options.user_agent.c_str());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_timeout.count()));
  set_up_authorities(curl);
  set_up_proxy(curl, exchange.url);
  set_up_method(transfer);
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, exchange.once ? 1L : 0L);
  transfer.headers = header_list(exchange);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, transfer.headers.get());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, transfer.detail);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Transfer::header_callback);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::body_callback);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_PRIVATE, &transfer);
}

}  // namespace

std::optional<std::string> HttpAnswer::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return std::nullopt;
}

void Mailbox::put(std::unique_ptr<HttpExchange> exchange) {
  const std::lock_guard lock(mutex_);
  exchanges_.push_back(std::move(exchange));
  arrived_.notify_one();
}

std::unique_ptr<HttpExchange> Mailbox::take() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !exchanges_.empty(); });
  auto exchange = std::move(exchanges_.front());
  exchanges_.pop_front();
  return exchange;
}

/// The engine's thread. Members below `thread-owned` belong to it alone.
class HttpEngine::Loop {
 public:
  explicit Loop(HttpEngineOptions options) : options_(options), multi_(make_curl_multi()) {
    const auto connections = static_cast<long>(options.connections);
    curl_multi_setopt(multi_.get(), CURLMOPT_MAX_HOST_CONNECTIONS, connections);
    // A file's address and its bytes are on two servers: both keep their connections.
    curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, kServers * connections);
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "http");
  }

  ~Loop() {
    cancel();
    thread_.join();
  }

  void start(Waiting waiting) {
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_) {
        arrivals_.push_back(std::move(waiting));
        curl_multi_wakeup(multi_.get());
        return;
      }
    }
    deliver(std::move(waiting.exchange), *waiting.mailbox, Outcome::kCancelled, stop_reason());
  }

  void wake() { curl_multi_wakeup(multi_.get()); }

  void cancel() {
    cancelled_ = true;
    wake();
  }

  std::uint64_t received() const { return received_; }

 private:
  void run() {
    // Signals are for the program's own threads. SIGPIPE, blocked, becomes an error of the write.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::string reason = "cancelled";
    try {
      while (!cancelled_) step();
    } catch (const std::exception& error) {
      reason = error.what();
    }
    stop(std::move(reason));
  }

  void step() {
    take_arrivals();
    drop_abandoned();
    start_due();
    resume_paused();
    int running = 0;
    check(curl_multi_perform(multi_.get(), &running));
    finish_completed();
    break_off_stalled();
    start_due();  // on connections that have just become free
    const auto wait = std::chrono::ceil<milliseconds>(next_deadline() - Clock::now());
    const auto capped = std::clamp<std::int64_t>(wait.count(), 0, 1000);
    check(curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(capped), nullptr));
  }

  static void check(CURLMcode code) {
    if (code != CURLM_OK) fail("libcurl: {}", curl_multi_strerror(code));
  }

  void take_arrivals() {
    const std::lock_guard lock(mutex_);
    std::move(arrivals_.begin(), arrivals_.end(), std::back_inserter(waiting_));
    arrivals_.clear();
  }

  void drop_abandoned() {
    std::erase_if(waiting_, [](Waiting& waiting) {
      if (!waiting.mailbox->abandoned_) return false;
      deliver(std::move(waiting.exchange), *waiting.mailbox, Outcome::kCancelled, "cancelled");
      return true;
    });
    for (auto at = active_.begin(); at != active_.end();) {
      const auto here = at++;
      if (here->mailbox->abandoned_) finish(here, Outcome::kCancelled, "cancelled");
    }
  }

  void start_due() {
    const auto now = Clock::now();
    for (auto at = waiting_.begin();
         at != waiting_.end() && active_.size() < options_.connections;) {
      if (at->not_before > now) {
        ++at;
        continue;
      }
      begin(std::move(*at));
      at = waiting_.erase(at);
    }
  }

  void begin(Waiting waiting) {
    Transfer& transfer = active_.emplace_back();
    transfer.exchange = std::move(waiting.exchange);
    transfer.mailbox = std::move(waiting.mailbox);
    transfer.received = &received_;
    transfer.last_byte = transfer.window_start = Clock::now();
    if (idle_.empty()) {
      transfer.easy = make_curl_easy();
    } else {
      transfer.easy = std::move(idle_.back());
      idle_.pop_back();
    }
    try {
      set_up(transfer, options_);
    } catch (const std::exception& error) {  // of the body's source
      return finish(std::prev(active_.end()), Outcome::kFailed, error.what());
    }
    check(curl_multi_add_handle(multi_.get(), transfer.easy.get()));
  }

  void resume_paused() {
    for (Transfer& transfer : active_) {
      if (!transfer.paused || !transfer.has_room(CURL_MAX_WRITE_SIZE)) continue;
      transfer.paused = false;
      transfer.last_byte = transfer.window_start = Clock::now();
      transfer.window_bytes = 0;
      curl_easy_pause(transfer.easy.get(),
                      CURLPAUSE_CONT);  // failures come with the transfer's end
    }
  }

  void finish_completed() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      char* self = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &self);
      const auto at = std::find_if(
          active_.begin(), active_.end(),
          [self](const Transfer& transfer) { return static_cast<const void*>(&transfer) == self; });
      check_internal(at != active_.end(), "libcurl finished a transfer that isn't ours");
      complete(at, code);
    }
  }

  void complete(std::list<Transfer>::iterator at, CURLcode code) {
    Transfer& transfer = *at;
    transfer.read_status();
    if (!transfer.failure.empty()) return finish(at, Outcome::kFailed, transfer.failure);
    if (code == CURLE_OK || transfer.cut) return finish(at, Outcome::kAnswered, {});
    if (transfer.refused) return finish(at, Outcome::kRefused, "longer body than announced");
    std::string reason = *transfer.detail ? transfer.detail : curl_easy_strerror(code);
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
      reason += "; SSL_CERT_FILE names the certificates of a private authority";
    finish(at, may_pass(code) ? Outcome::kBroken : Outcome::kFailed, reason);
  }

  void break_off_stalled() {
    const auto now = Clock::now();
    for (auto at = active_.begin(); at != active_.end();) {
      const auto here = at++;
      if (here->paused) continue;
      const milliseconds limit = stall_timeout(*here);
      if (now - here->last_byte >= limit) {
        finish(here, Outcome::kBroken, fmt::format("no byte arrived for {} ms", limit.count()));
      } else if (now - here->window_start >= limit) {
        const auto enough = kSlowest * static_cast<std::uint64_t>(limit.count()) / 1000;
        if (here->window_bytes < enough) {
          finish(here, Outcome::kBroken,
                 fmt::format("only {} bytes {} in {} ms", here->window_bytes,
                             here->exchange->body ? "went out" : "arrived", limit.count()));
          continue;
        }
        here->window_start = now;
        here->window_bytes = 0;
      }
    }
  }

  milliseconds stall_timeout(const Transfer& transfer) const {
    return transfer.exchange->stall_timeout.value_or(options_.stall_timeout);
  }

  Clock::time_point next_deadline() const {
    auto deadline = Clock::now() + std::chrono::seconds(1);
    for (const Transfer& transfer : active_)
      if (!transfer.paused)
        deadline = std::min(deadline, std::min(transfer.last_byte, transfer.window_start) +
                                          stall_timeout(transfer));
    if (active_.size() < options_.connections)
      for (const Waiting& waiting : waiting_) deadline = std::min(deadline, waiting.not_before);
    return deadline;
  }

  void finish(std::list<Transfer>::iterator at, Outcome outcome, std::string reason) {
    curl_multi_remove_handle(multi_.get(), at->easy.get());
    idle_.push_back(std::move(at->easy));
    deliver(std::move(at->exchange), *at->mailbox, outcome, std::move(reason));
    active_.erase(at);
  }

  void stop(std::string reason) {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      stop_reason_ = reason;
    }
    take_arrivals();  // none come later
    while (!active_.empty()) finish(active_.begin(), Outcome::kCancelled, reason);
    for (Waiting& waiting : waiting_)
      deliver(std::move(waiting.exchange), *waiting.mailbox, Outcome::kCancelled, reason);
    waiting_.clear();
  }

  std::string stop_reason() {
    const std::lock_guard lock(mutex_);
    return stop_reason_;
  }

  const HttpEngineOptions options_;
  const CurlMulti multi_;
  std::atomic<std::uint64_t> received_ = 0;
  std::atomic<bool> cancelled_ = false;

  std::mutex mutex_;
  std::vector<Waiting> arrivals_;
  bool stopped_ = false;
  std::string stop_reason_;

  // thread-owned
  std::list<Waiting> waiting_;
  std::list<Transfer> active_;
  std::vector<CurlEasy> idle_;

  std::thread thread_;
};

std::string default_user_agent() {
  std::string agent = "lerobot.cpp; libcurl/" LIBCURL_VERSION;
  if (const char* origin = std::getenv("HF_HUB_USER_AGENT_ORIGIN"); origin && *origin)
    agent += fmt::format("; origin/{}", printable_text(origin, 200));
  return agent;
}

HttpEngine::HttpEngine(HttpEngineOptions options) : loop_(std::make_unique<Loop>(options)) {}

HttpEngine::~HttpEngine() = default;

void HttpEngine::start(std::unique_ptr<HttpExchange> exchange, std::shared_ptr<Mailbox> mailbox,
                       Clock::time_point not_before) {
  loop_->start({std::move(exchange), std::move(mailbox), not_before});
}

void HttpEngine::abandon(Mailbox& mailbox) {
  mailbox.abandoned_ = true;
  loop_->wake();
}

void HttpEngine::cancel() { loop_->cancel(); }

void HttpEngine::wake() { loop_->wake(); }

std::uint64_t HttpEngine::bytes_received() const { return loop_->received(); }

}  // namespace lerobot::hub
