#include "lerobot/hub/remote_file.h"

#include <algorithm>
#include <array>
#include <exception>
#include <random>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/hub/content_range.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

std::string without_query(const std::string& url) { return url.substr(0, url.find('?')); }

/// The body's own size, not that of a compressed form.
bool is_encoded(const HttpAnswer& answer) {
  const auto encoding = answer.header("content-encoding");
  return encoding && *encoding != "identity" && !encoding->empty();
}

/// Walks from a source URL to the place of its bytes.
class Resolve : public HttpRequest, public BodySink {
 public:
  /// `start` is the source, or the source with its refresh parameter.
  Resolve(std::string source, std::string start, const Credentials& credentials)
      : source_(std::move(source)), url_(std::move(start)), credentials_(credentials) {}

  void prepare(HttpExchange& exchange) override {
    exchange.url = url_;
    exchange.method = method_ == Method::kHead ? "HEAD" : "GET";
    exchange.sink = this;
    if (method_ == Method::kOneByte) exchange.headers.emplace_back("Range: bytes=0-0");
    credentials_.add_to(exchange, source_);
  }

  Step judge(const HttpExchange& exchange) override {
    if (exchange.outcome == Outcome::kRefused)  // a 200 to the one-byte range
      fail_ranges_ignored();
    if (const auto step = judge_transport(*this, exchange)) return *step;
    const HttpAnswer& answer = exchange.answer;
    if (is_redirect(answer.status)) return follow(answer);
    if (answer.status == 200 && method_ == Method::kHead) return judge_head(answer);
    if (method_ == Method::kOneByte) return judge_one_byte(answer);
    if (head_is_unknown(answer.status)) return ask_for_one_byte();
    fail_status(*this, answer, credentials_);
  }

  std::string describe() const override { return printable_url(source_); }

  // The body of the one-byte range is not looked at; a long one is a server that ignores ranges.
  bool begin(const HttpAnswer& answer) override { return answer.status == 200; }
  bool write(std::span<const std::uint8_t>) override { return false; }

  const std::string& source() const { return source_; }

  Resolution result() const {
    Resolution out;
    out.url = url_;
    out.size = linked_size_ ? *linked_size_ : size_;
    out.validator = validator_;
    for (const auto& candidate :
         {linked_etag_, final_etag_, redirect_etag_, validator_.last_modified})
      if (candidate && !out.identity) out.identity = candidate;
    return out;
  }

 private:
  enum class Method { kHead, kOneByte };

  bool leaves_the_origin() const { return url_origin(url_) != url_origin(source_); }

  /// A signature may allow GET alone, hence 401 and 403 away from the source.
  bool head_is_unknown(long status) const {
    return status == 400 || status == 405 || status == 501 ||
           ((status == 401 || status == 403) && leaves_the_origin());
  }

  void note_links(const HttpAnswer& answer) {
    if (const auto size = answer.header("x-linked-size")) {
      linked_size_ = parse_byte_count(*size);
      if (!linked_size_) fail("{}: X-Linked-Size is no number of bytes: {}", describe(), *size);
    }
    if (const auto etag = answer.header("x-linked-etag")) linked_etag_ = etag;
  }

  Step follow(const HttpAnswer& answer) {
    note_links(answer);
    if (!redirect_etag_) redirect_etag_ = answer.header("etag");
    url_ = redirect_target(*this, url_, answer);
    if (linked_size_ && leaves_the_origin()) return Step::done();
    return Step::again();
  }

  Step judge_head(const HttpAnswer& answer) {
    note_links(answer);
    const auto length = answer.header("content-length");
    const auto size = length ? parse_byte_count(*length) : std::nullopt;
    if (is_encoded(answer) || (!size && !linked_size_)) return ask_for_one_byte();
    return settle(answer, size.value_or(0));
  }

  Step ask_for_one_byte() {
    method_ = Method::kOneByte;
    return Step::again();
  }

  Step judge_one_byte(const HttpAnswer& answer) {
    const auto header = answer.header("content-range");
    std::optional<std::uint64_t> size;
    if (const auto range = parse_content_range(header.value_or(""))) size = range->size;
    // An empty file has no byte to give: both answers are right.
    if (answer.status == 416 && size == 0) return settle(answer, 0);
    if (answer.status == 200 && answer.header("content-length") == "0") return settle(answer, 0);
    if (answer.status == 200) fail_ranges_ignored();
    if (answer.status != 206) fail_status(*this, answer, credentials_);
    note_links(answer);
    if (!size && !linked_size_)
      fail("{}: the server doesn't tell the file's size (no Content-Length, Content-Range: {})",
           describe(), header.value_or("none"));
    return settle(answer, size.value_or(0));
  }

  Step settle(const HttpAnswer& answer, std::uint64_t size) {
    size_ = size;
    final_etag_ = answer.header("etag");
    validator_ = Validator::of(answer);
    return Step::done();
  }

  [[noreturn]] void fail_ranges_ignored() const {
    fail(
        "{}: the server answers a range with status 200 and the whole file; streaming needs a "
        "server that supports byte ranges (status 206)",
        describe());
  }

  const std::string source_;
  std::string url_;
  const Credentials& credentials_;
  Method method_ = Method::kHead;
  std::uint64_t size_ = 0;
  std::optional<std::uint64_t> linked_size_;
  std::optional<std::string> linked_etag_;
  std::optional<std::string> redirect_etag_;
  std::optional<std::string> final_etag_;
  Validator validator_;
};

void send(HttpSender& sender, std::vector<Resolve>& walks) {
  std::vector<HttpRequest*> requests;
  for (Resolve& walk : walks) requests.push_back(&walk);
  sender.send_all(requests);
}

}  // namespace

Validator Validator::of(const HttpAnswer& answer) {
  Validator out{answer.header("etag"), answer.header("last-modified")};
  if (out.etag && out.etag->starts_with("W/")) out.etag->erase(0, 2);
  return out;
}

bool Validator::agrees_with(const Validator& other) const {
  if (etag && other.etag) return *etag == *other.etag;
  if (last_modified && other.last_modified) return *last_modified == *other.last_modified;
  return true;
}

RemoteFile::RemoteFile(std::string source, Resolution found)
    : source_(std::move(source)),
      size_(found.size),
      identity_(std::move(found.identity)),
      validator_url_(without_query(found.url)),
      validator_(std::move(found.validator)) {
  set_place(found.url);
}

void RemoteFile::set_place(const std::string& url) {
  place_.url = url;
  place_.redirected = url != source_;
  ++place_.generation;
}

ResolvedUrl RemoteFile::place() const {
  const std::lock_guard lock(mutex_);
  return place_;
}

void RemoteFile::move_to(const std::string& url) {
  const std::lock_guard lock(mutex_);
  set_place(url);
}

void RemoteFile::refresh(const Resolution& found) {
  if (found.size != size_ || (found.identity && identity_ && *found.identity != *identity_))
    fail(
        "{}: changed during the run: {} bytes ({}) at first, {} bytes ({}) now; restart from a "
        "revision that stays as it is",
        printable_url(source_), size_, identity_.value_or("no identity"), found.size,
        found.identity.value_or("no identity"));
  const std::lock_guard lock(mutex_);
  set_place(found.url);
  if (validator_url_ == without_query(found.url)) return;
  validator_url_ = without_query(found.url);
  validator_ = found.validator;
}

bool RemoteFile::same_content(const std::string& url, const HttpAnswer& answer) {
  const Validator seen = Validator::of(answer);
  const std::lock_guard lock(mutex_);
  const std::string place = without_query(url);
  if (place == validator_url_ && !validator_.agrees_with(seen)) return false;
  if (place != validator_url_) {
    validator_url_ = place;
    validator_ = seen;
  }
  if (!validator_.etag) validator_.etag = seen.etag;
  if (!validator_.last_modified) validator_.last_modified = seen.last_modified;
  return true;
}

RemoteFiles::RemoteFiles(HttpSender& sender, Credentials credentials)
    : sender_(sender), credentials_(std::move(credentials)) {}

std::vector<std::shared_ptr<RemoteFile>> RemoteFiles::find(std::span<const std::string> urls) {
  std::vector<Found> found;
  std::vector<Resolve> walks;
  std::vector<std::promise<std::shared_ptr<RemoteFile>>> promises;
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& url : urls) {
      auto at = files_.find(url);
      if (at == files_.end()) {
        walks.emplace_back(url, url, credentials_);
        promises.emplace_back();
        at = files_.emplace(url, promises.back().get_future().share()).first;
      }
      found.push_back(at->second);
    }
  }
  if (!walks.empty()) {
    try {
      send(sender_, walks);
      for (std::size_t i = 0; i < walks.size(); ++i)
        promises[i].set_value(std::make_shared<RemoteFile>(walks[i].source(), walks[i].result()));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      for (const Resolve& walk : walks) files_.erase(walk.source());
      for (auto& promise : promises) {
        try {
          promise.set_exception(std::current_exception());
        } catch (const std::future_error&) {  // has its value already
        }
      }
      throw;
    }
  }
  std::vector<std::shared_ptr<RemoteFile>> out;
  for (const Found& future : found) out.push_back(future.get());
  return out;
}

void RemoteFiles::refresh(std::span<const std::shared_ptr<RemoteFile>> files) {
  std::vector<Resolve> walks;
  for (const auto& file : files)
    walks.emplace_back(file->source(),
                       with_query_parameter(file->source(), "_refresh", random_uuid()),
                       credentials_);
  send(sender_, walks);
  for (std::size_t i = 0; i < files.size(); ++i) files[i]->refresh(walks[i].result());
}

std::string random_uuid() {
  std::random_device device;
  std::array<std::uint32_t, 4> words{};
  for (std::uint32_t& word : words) word = device();
  words[1] = (words[1] & 0xffff0fffU) | 0x4000U;      // version 4
  words[2] = (words[2] & 0x3fffffffU) | 0x80000000U;  // variant 1
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:04x}{:08x}", words[0], words[1] >> 16,
                     words[1] & 0xffff, words[2] >> 16, words[2] & 0xffff, words[3]);
}

}  // namespace lerobot::hub
