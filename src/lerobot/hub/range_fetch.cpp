#include "lerobot/hub/range_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/hub/content_range.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

/// An attempt that brings this much is not one of a series of failures: a server that closes long
/// transfers is used to the end, one that sends next to nothing is given up.
constexpr std::uint64_t kProgress = 1 << 20;

}  // namespace

RangeFetch::RangeFetch(std::shared_ptr<RemoteFile> file, PlannedFetch plan,
                       const Credentials& credentials)
    : file_(std::move(file)),
      plan_(std::move(plan)),
      credentials_(credentials),
      position_(plan_.first),
      attempt_start_(plan_.first) {}

std::string RangeFetch::describe() const {
  return fmt::format("{}: bytes {}-{}", printable_url(file_->source()), plan_.first, plan_.end - 1);
}

void RangeFetch::prepare(HttpExchange& exchange) {
  refreshed_ = refreshed_ || denied_;
  denied_ = accepts_ = changed_ = false;
  place_ = file_->place();
  attempt_start_ = position_;
  exchange.url = place_.url;
  exchange.sink = this;
  exchange.headers.push_back(fmt::format("Range: bytes={}-{}", position_, plan_.end - 1));
  credentials_.add_to(exchange, file_->source());
}

bool RangeFetch::made_progress() { return position_ - attempt_start_ >= kProgress; }

std::string RangeFetch::fault_of(const HttpAnswer& answer) const {
  const auto header = answer.header("content-range");
  const auto range = header ? parse_content_range(*header) : std::nullopt;
  if (!range || range->first != attempt_start_ || range->last != plan_.end - 1)
    return fmt::format("expected Content-Range: bytes {}-{}/{}, found {}", attempt_start_,
                       plan_.end - 1, file_->size(), header.value_or("none"));
  if (const auto encoding = answer.header("content-encoding"); encoding && *encoding != "identity")
    return fmt::format("expected the bytes as they are, found Content-Encoding: {}", *encoding);
  const auto length = answer.header("content-length");
  if (length && parse_byte_count(*length).value_or(0) > plan_.end - attempt_start_)
    return fmt::format("expected {} bytes, found Content-Length: {}", plan_.end - attempt_start_,
                       *length);
  return {};
}

bool RangeFetch::begin(const HttpAnswer& answer) {
  // A body that isn't the asked range is taken only to be refused by the first write(): that cuts a
  // whole file short. Those of errors are short and dropped.
  accepts_ = answer.status == 206 && fault_of(answer).empty();
  if (!accepts_) return answer.status == 200 || answer.status == 206;
  const auto size = parse_content_range(*answer.header("content-range"))->size;
  changed_ = !file_->same_content(place_.url, answer) || (size && *size != file_->size());
  return true;
}

bool RangeFetch::write(std::span<const std::uint8_t> bytes) {
  if (!accepts_ || changed_ || bytes.size() > plan_.end - position_) return false;
  copy(position_, bytes);
  position_ += bytes.size();
  return true;
}

void RangeFetch::copy(std::uint64_t position, std::span<const std::uint8_t> bytes) {
  const std::uint64_t end = position + bytes.size();
  const auto& segments = plan_.segments;
  while (first_open_ < segments.size() && segments[first_open_].end() <= position) ++first_open_;
  for (std::size_t i = first_open_; i < segments.size() && segments[i].offset < end; ++i) {
    const Segment& segment = segments[i];
    const std::uint64_t from = std::max(position, segment.offset);
    const std::uint64_t to = std::min(end, segment.end());
    if (from < to)
      std::memcpy(segment.out.data() + (from - segment.offset), bytes.data() + (from - position),
                  to - from);
  }
}

Step RangeFetch::judge(const HttpExchange& exchange) {
  const HttpAnswer& answer = exchange.answer;
  if (answer.status == 206 || answer.status == 200) return judge_body(exchange);
  if (const auto step = judge_transport(*this, exchange)) return *step;
  if (is_redirect(answer.status)) {
    file_->move_to(redirect_target(*this, place_.url, answer));
    return Step::again();
  }
  if (answer.status == 401 || answer.status == 403) return judge_denial(answer);
  if (answer.status == 416)
    fail(
        "{}: the server has no such bytes, {}; the file had {} bytes at first: it changed during "
        "the run, or the server is at fault",
        describe(), describe_status(answer), file_->size());
  fail_status(*this, answer, credentials_);
}

Step RangeFetch::judge_body(const HttpExchange& exchange) {
  const HttpAnswer& answer = exchange.answer;
  // Broken before the body: its headers may be incomplete, too.
  if (exchange.outcome == Outcome::kBroken && !accepts_) return short_body(exchange);
  if (changed_)
    fail(
        "{}: the file changed during the run: ETag, date or size are not those of the first "
        "answer; restart from a revision that stays as it is",
        describe());
  if (answer.status == 200)
    fail(
        "{}: the server answers a range with status 200 and the whole file; streaming needs a "
        "server that supports byte ranges (status 206)",
        describe());
  if (const std::string fault = fault_of(answer); !fault.empty())
    fail("{}: the server answers with other bytes: {}", describe(), fault);
  if (exchange.outcome == Outcome::kRefused)
    fail("{}: the server sends more than the {} bytes of the range", describe(),
         plan_.end - attempt_start_);
  if (position_ == plan_.end) return Step::done();
  if (exchange.outcome == Outcome::kFailed) fail("{}: {}", describe(), exchange.reason);
  return short_body(exchange);
}

Step RangeFetch::short_body(const HttpExchange& exchange) const {
  return Step::retry(fmt::format("the body ended after {} of {} bytes{}{}", position_ - plan_.first,
                                 plan_.end - plan_.first, exchange.reason.empty() ? "" : ": ",
                                 exchange.reason));
}

Step RangeFetch::judge_denial(const HttpAnswer& answer) {
  if (!place_.redirected) fail_status(*this, answer, credentials_);
  if (refreshed_)
    fail("{}: access denied, {}, also after the URL was refreshed; {}", describe(),
         describe_status(answer), credentials_.describe());
  denied_ = true;
  return Step::done();
}

}  // namespace lerobot::hub
