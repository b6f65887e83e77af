#include "lerobot/hub/upload_request.h"

#include <algorithm>

#include "lerobot/base/error.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

constexpr std::size_t kLongestAnswer = 1 << 20;
constexpr std::size_t kLongestText = 500;
/// A storage may have to look at gigabytes before it answers.
constexpr std::chrono::milliseconds kPatience{120'000};

class StorageRequest final : public HttpRequest, public BodySink {
 public:
  explicit StorageRequest(const UploadRequest& request) : request_(request), url_(request.url) {}

  void prepare(HttpExchange& exchange) override {
    answer_ = {};
    exchange.url = url_;
    exchange.method = request_.method;
    exchange.headers = request_.headers;
    exchange.body = request_.body;
    exchange.sink = this;
    exchange.stall_timeout = kPatience;
    if (request_.credentials) request_.credentials->add_to(exchange, request_.url);
  }

  Step judge(const HttpExchange& exchange) override {
    if (const auto step = judge_transport(*this, exchange)) return *step;
    if (is_redirect(exchange.answer.status)) {
      url_ = redirect_target(*this, url_, exchange.answer);
      return Step::again();
    }
    answer_.head = exchange.answer;
    return Step::done();
  }

  std::string describe() const override {
    return fmt::format("{} {}", request_.method, printable_url(url_));
  }

  bool begin(const HttpAnswer&) override { return true; }

  bool write(std::span<const std::uint8_t> bytes) override {
    const std::size_t taken = std::min(bytes.size(), kLongestAnswer - answer_.body.size());
    answer_.body.append(reinterpret_cast<const char*>(bytes.data()), taken);
    return true;
  }

  UploadAnswer take() { return std::move(answer_); }

 private:
  const UploadRequest& request_;
  std::string url_;
  UploadAnswer answer_;
};

}  // namespace

UploadAnswer send_upload(HubClient& client, const UploadRequest& request) {
  StorageRequest storage(request);
  HttpRequest* const requests[] = {&storage};
  try {
    client.sender().send_all(requests);
  } catch (const UnreachableError& error) {
    fail_unreachable(request.subject, error.what(), error.status());
  }
  return storage.take();
}

void fail_upload(const UploadRequest& request, const UploadAnswer& answer) {
  std::string words = describe_status(answer.head);
  if (!answer.body.empty()) words += ": " + printable_text(answer.body, kLongestText);
  throw HubError(HubFault::kRefused, answer.head.status,
                 fmt::format("cannot {}: {}: {} refuses, {}", request.subject.action,
                             describe(request.subject.repo), printable_url(request.url), words));
}

}  // namespace lerobot::hub
