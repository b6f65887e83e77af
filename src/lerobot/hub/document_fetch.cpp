#include "lerobot/hub/document_fetch.h"

#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

constexpr std::size_t kLargestDocument = std::size_t{1} << 30;

}  // namespace

DocumentFetch::DocumentFetch(DocumentRequest request, const Credentials& credentials)
    : request_(std::move(request)), credentials_(credentials), url_(request_.url) {}

std::string DocumentFetch::describe() const { return printable_url(request_.url); }

void DocumentFetch::prepare(HttpExchange& exchange) {
  body_.clear();
  exchange.url = url_;
  exchange.sink = this;
  if (request_.known_etag) exchange.headers.push_back("If-None-Match: " + *request_.known_etag);
  credentials_.add_to(exchange, request_.url);
}

bool DocumentFetch::begin(const HttpAnswer& answer) { return answer.status == 200; }

bool DocumentFetch::write(std::span<const std::uint8_t> bytes) {
  if (bytes.size() > kLargestDocument - body_.size()) return false;
  body_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return true;
}

Step DocumentFetch::judge(const HttpExchange& exchange) {
  if (exchange.outcome == Outcome::kRefused)
    fail("{}: is larger than {} bytes, which no file of this kind is", describe(),
         kLargestDocument);
  if (const auto step = judge_transport(*this, exchange)) return *step;
  const HttpAnswer& answer = exchange.answer;
  if (is_redirect(answer.status)) {
    url_ = redirect_target(*this, url_, answer);
    return Step::again();
  }
  if (answer.status == 404 || answer.status == 410) return Step::done();
  if (answer.status == 403 && request_.denied_means_missing) return Step::done();
  if (answer.status == 304 && request_.known_etag) {
    result_ = Document{.unchanged = true, .body = {}, .etag = request_.known_etag};
    return Step::done();
  }
  if (answer.status != 200) fail_status(*this, answer, credentials_);
  if (const auto encoding = answer.header("content-encoding"); encoding && *encoding != "identity")
    fail("{}: expected the bytes as they are, found Content-Encoding: {}", describe(), *encoding);
  result_ = Document{.unchanged = false, .body = std::move(body_), .etag = answer.header("etag")};
  return Step::done();
}

}  // namespace lerobot::hub
