#include "lerobot/hub/hub_client.h"

#include <algorithm>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/body_source.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

/// No answer of the API is larger, pages of listings included.
constexpr std::size_t kLargestAnswer = std::size_t{256} << 20;
constexpr std::size_t kLongestWarning = 500;
/// More pages than the largest listing has.
constexpr int kMostPages = 100'000;

class ApiRequest final : public HttpRequest, public BodySink {
 public:
  ApiRequest(const ApiCall& call, const std::string& endpoint, const Credentials& credentials)
      : call_(call),
        endpoint_(endpoint),
        credentials_(credentials),
        url_(call.url),
        body_(call.body) {}

  void prepare(HttpExchange& exchange) override {
    received_.clear();
    exchange.url = url_;
    exchange.method = call_.method;
    exchange.headers = call_.headers;
    if (!call_.content_type.empty())
      exchange.headers.push_back("Content-Type: " + call_.content_type);
    exchange.body = call_.method == "POST" || call_.method == "PUT" ? &body_ : nullptr;
    exchange.sink = this;
    exchange.stall_timeout = call_.patience;
    exchange.once = call_.once;
    if (call_.with_token) credentials_.add_to(exchange, endpoint_);
  }

  Step judge(const HttpExchange& exchange) override {
    if (exchange.outcome == Outcome::kRefused)
      fail("{}: the answer is larger than {} bytes, which none of a Hub is", describe(),
           kLargestAnswer);
    if (call_.once && exchange.outcome == Outcome::kBroken)
      throw UnreachableError(fmt::format("{}: {}", describe(), exchange.reason), 0);
    const bool refused_once = call_.once && exchange.outcome == Outcome::kAnswered;
    if (!refused_once)
      if (const auto step = judge_transport(*this, exchange)) return *step;
    if (is_redirect(exchange.answer.status)) {
      url_ = redirect_target(*this, url_, exchange.answer);
      return Step::again();
    }
    answer_ = exchange.answer;
    return Step::done();
  }

  std::string describe() const override {
    return fmt::format("{} {}", call_.method, printable_url(url_));
  }

  bool begin(const HttpAnswer&) override { return true; }

  bool write(std::span<const std::uint8_t> bytes) override {
    if (bytes.size() > kLargestAnswer - received_.size()) return false;
    received_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }

  ApiAnswer take() { return {std::move(answer_), std::move(received_), std::move(url_)}; }

 private:
  const ApiCall& call_;
  const std::string& endpoint_;
  const Credentials& credentials_;
  std::string url_;
  TextBody body_;
  std::string received_;
  HttpAnswer answer_;
};

/// The target of `Link: <URL>; rel="next"`; empty without one.
std::string next_page(const ApiAnswer& answer) {
  const auto header = answer.head.header("link");
  if (!header) return "";
  std::string_view links = *header;
  while (!links.empty()) {
    const std::size_t open = links.find('<');
    const std::size_t close = links.find('>', open);
    if (open == std::string_view::npos || close == std::string_view::npos) return "";
    const std::string_view rest = links.substr(close + 1);
    const std::string_view parameters = rest.substr(0, rest.find('<'));
    if (parameters.find("rel=\"next\"") != std::string_view::npos)
      return join_url(answer.url, std::string(links.substr(open + 1, close - open - 1)));
    links = rest;
  }
  return "";
}

Json parse_answer(const ApiAnswer& answer, const Subject& subject) {
  Json json = Json::parse(answer.body, nullptr, false);
  if (json.is_discarded())
    fail_answer(subject, fmt::format("{} answers with something that is not JSON",
                                     printable_url(answer.url)));
  return json;
}

}  // namespace

HubClient::HubClient(HubEnvironment environment, HubClientOptions options)
    : environment_(std::move(environment)),
      options_(options),
      engine_({.connections = options.connections,
               .connect_timeout = environment_.etag_timeout,
               .stall_timeout = std::chrono::seconds(30)}),
      sender_(engine_, options.retry) {
  if (options.stops_when_interrupted) on_interrupt_.emplace([this] { cancel(); });
}

ApiAnswer HubClient::call(const ApiCall& call, const Subject& subject) {
  if (environment_.offline) fail_offline(subject);
  ApiRequest request(call, environment_.endpoint, environment_.credentials);
  HttpRequest* const requests[] = {&request};
  try {
    sender_.send_all(requests);
  } catch (const UnreachableError& error) {
    fail_unreachable(subject, error.what(), error.status());
  }
  ApiAnswer answer = request.take();
  show_warnings(answer.head);
  if (answer.head.status >= 400)
    fail_hub(subject, answer.head, answer.body, environment_.endpoint, environment_.credentials);
  return answer;
}

void HubClient::show_warnings(const HttpAnswer& answer) {
  for (const auto& [name, value] : answer.headers) {
    if (name != "x-hf-warning") continue;
    // "topic; message"
    const std::size_t end = value.find(';');
    const std::string topic = end == std::string::npos ? "" : value.substr(0, end);
    const std::size_t text = end == std::string::npos ? 0 : value.find_first_not_of(' ', end + 1);
    if (text == std::string::npos) continue;
    const std::lock_guard lock(mutex_);
    if (warned_.insert(topic).second)
      log::warning("{}: {}", environment_.endpoint,
                   printable_text(value.substr(text), kLongestWarning));
  }
}

Json HubClient::call_json(const ApiCall& call, const Subject& subject) {
  return parse_answer(this->call(call, subject), subject);
}

Json HubClient::call_pages(ApiCall call, const Subject& subject) {
  Json all = Json::array();
  for (int pages = 0; !call.url.empty(); ++pages) {
    if (pages == kMostPages)
      fail_answer(subject, fmt::format("a listing has more than {} pages", kMostPages));
    const ApiAnswer answer = this->call(call, subject);
    Json page = parse_answer(answer, subject);
    if (!page.is_array())
      fail_answer(subject, fmt::format("{}: expected a JSON array", printable_url(answer.url)));
    for (Json& element : page) all.push_back(std::move(element));
    std::string next = next_page(answer);
    if (next == call.url) fail_answer(subject, printable_url(next) + " is its own next page");
    call.url = std::move(next);
  }
  return all;
}

std::string text_field(const Json& object, const char* name, const Subject& subject) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_string())
    fail_answer(subject, fmt::format("an answer lacks the text \"{}\"", name));
  return object[name].get<std::string>();
}

std::uint64_t count_field(const Json& object, const char* name, const Subject& subject) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_number_integer() ||
      (object[name].is_number_integer() && !object[name].is_number_unsigned() &&
       object[name].get<std::int64_t>() < 0))
    fail_answer(subject, fmt::format("an answer lacks the number \"{}\"", name));
  return object[name].get<std::uint64_t>();
}

}  // namespace lerobot::hub
