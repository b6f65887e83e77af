#include "lerobot/hub/http_engine.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <list>
#include <thread>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/hub/curl_handle.h"
#include "lerobot/hub/http_transfer.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

using Clock = HttpEngine::Clock;
using std::chrono::milliseconds;

/// A transfer below this many bytes a second is as good as none.
constexpr std::uint64_t kSlowest = 1024;
/// Connections are kept alive for this many servers.
constexpr long kServers = 3;

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
      transfer.set_up(options_);
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
